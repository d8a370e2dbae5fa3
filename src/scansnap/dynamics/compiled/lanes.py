"""Vector registers for compiled code: a few numbers side by side, and tuples of them.

The compiler vectorizes a loop only after it has proved, or checked while running, that what is written is not read, and
it does not keep sums in registers across an outer loop.  Here the code states both explicitly.  It also fixes the order
of sums: results depend neither on where arrays lie in memory nor on how the compiler treats a loop.  The compiler
splits vectors longer than the machine's registers, so none of this is specific to one machine.

Every `length` and `count` is a constant in the calling code.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model


class Lanes(types.Type):
    """`length` numbers of one type."""

    def __init__(self, dtype, length):
        self.dtype, self.length = dtype, length
        super().__init__(name=f"Lanes({dtype}, {length})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager, lanes):
        number = manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, lanes.length))


@intrinsic(prefer_literal=True)
def load(typing, x, i, j, length):
    """x[i, j : j + length]."""
    lanes = Lanes(x.dtype, length.literal_value)

    def generate(context, builder, signature, args):
        return _load(context, builder, x, args[0], args[1], args[2], lanes=lanes)

    return lanes(x, types.intp, types.intp, length), generate


@intrinsic
def store(typing, x, i, j, lanes):
    """x[i, j : j + length] <- lanes."""

    def generate(context, builder, signature, args):
        _store(context, builder, x, args[0], args[1], args[2], args[3])

    return types.void(x, types.intp, types.intp, lanes), generate


@intrinsic
def spread(typing, number, like):
    """A vector as long as `like` with the number in every lane."""

    def generate(context, builder, signature, args):
        return _spread(builder, args[0], like.length)

    return like(like.dtype, like), generate


@intrinsic
def add(typing, a, b):
    """a + b."""
    return a(a, a), lambda context, builder, signature, args: builder.fadd(*args)


@intrinsic
def subtract(typing, a, b):
    """a - b."""
    return a(a, a), lambda context, builder, signature, args: builder.fsub(*args)


@intrinsic
def multiply(typing, a, b):
    """a b."""
    return a(a, a), lambda context, builder, signature, args: builder.fmul(*args)


@intrinsic
def divide(typing, a, b):
    """a / b."""
    return a(a, a), lambda context, builder, signature, args: builder.fdiv(*args)


@intrinsic
def multiply_add(typing, a, b, c):
    """a b + c, rounded once where the machine can."""
    return a(a, a, a), lambda context, builder, signature, args: _multiply_add(builder, *args)


@intrinsic
def maximum(typing, a, b):
    """The larger of a and b; b where either is NaN."""
    return a(a, a), lambda context, builder, signature, args: _maximum(builder, *args)


@intrinsic
def minimum(typing, a, b):
    """The smaller of a and b; b where either is NaN."""

    def generate(context, builder, signature, args):
        return builder.select(builder.fcmp_ordered("<", *args), *args)

    return a(a, a), generate


@intrinsic
def zero_unless_above(typing, a, b, x):
    """x where a > b, or where one of them is NaN; otherwise 0."""

    def generate(context, builder, signature, args):
        above = builder.fcmp_unordered(">", args[0], args[1])
        return builder.select(above, args[2], ir.Constant(args[2].type, None))

    return x(a, a, x), generate


@intrinsic
def square_root(typing, lanes):
    """The square root of each lane."""

    def generate(context, builder, signature, args):
        return _call(builder, "llvm.sqrt", args)

    return lanes(lanes), generate


@intrinsic
def nearest(typing, lanes):
    """Each lane rounded to a whole number, halves to even."""

    def generate(context, builder, signature, args):
        return _call(builder, "llvm.rint", args)

    return lanes(lanes), generate


@intrinsic
def times_power_of_two(typing, lanes, exponent):
    """lanes 2^exponent for whole exponents and results that are neither too large nor too small; NaN stays NaN."""
    bits, fraction = (32, 23) if lanes.dtype == types.float32 else (64, 52)

    def generate(context, builder, signature, args):
        whole = ir.VectorType(ir.IntType(bits), lanes.length)
        shift = ir.Constant(whole, [fraction] * lanes.length)  # past the fraction
        exponent = builder.shl(builder.fptosi(args[1], whole), shift)
        return builder.bitcast(builder.add(builder.bitcast(args[0], whole), exponent), args[0].type)

    return lanes(lanes, lanes), generate


@intrinsic
def total(typing, lanes):
    """The sum of the lanes."""
    return lanes.dtype(lanes), lambda context, builder, signature, args: _reduce(builder, args[0], builder.fadd)


@intrinsic
def highest(typing, lanes):
    """The largest of the lanes; meaningless if one is NaN."""

    def generate(context, builder, signature, args):
        return _reduce(builder, args[0], lambda a, b: _maximum(builder, a, b))

    return lanes.dtype(lanes), generate


@intrinsic(prefer_literal=True)
def load_each(typing, x, j, length, count):
    """The `count` vectors x[i, j : j + length]."""
    lanes = Lanes(x.dtype, length.literal_value)
    each = types.UniTuple(lanes, count.literal_value)

    def generate(context, builder, signature, args):
        rows = [ir.Constant(ir.IntType(64), i) for i in range(each.count)]
        return cgutils.pack_array(
            builder, [_load(context, builder, x, args[0], row, args[1], lanes=lanes) for row in rows]
        )

    return each(x, types.intp, length, count), generate


@intrinsic(prefer_literal=True)
def load_columns(typing, x, s, i, j, length):
    """The `length` vectors x[s, i : i + length, j + k]."""
    lanes = Lanes(x.dtype, length.literal_value)
    each = types.UniTuple(lanes, lanes.length)

    def generate(context, builder, signature, args):
        array, s, i, j = args[:4]
        rows = [builder.add(i, ir.Constant(ir.IntType(64), k)) for k in range(lanes.length)]
        return cgutils.pack_array(
            builder, _transposed(builder, [_load(context, builder, x, array, s, row, j, lanes=lanes) for row in rows])
        )

    return each(x, types.intp, types.intp, types.intp, length), generate


@intrinsic
def store_each(typing, x, first, j, each):
    """x[first + i, j : j + length] <- each[i]."""

    def generate(context, builder, signature, args):
        for i, lanes in enumerate(cgutils.unpack_tuple(builder, args[3], each.count)):
            row = builder.add(args[1], ir.Constant(ir.IntType(64), i))
            _store(context, builder, x, args[0], row, args[2], lanes)

    return types.void(x, types.intp, types.intp, each), generate


@intrinsic(prefer_literal=True)
def spread_each(typing, x, i, length, count):
    """The `count` vectors with x[i, k] in every lane."""
    each = types.UniTuple(Lanes(x.dtype, length.literal_value), count.literal_value)

    def generate(context, builder, signature, args):
        columns = [ir.Constant(ir.IntType(64), k) for k in range(each.count)]
        numbers = [builder.load(_pointer(context, builder, x, args[0], args[1], k)) for k in columns]
        return cgutils.pack_array(builder, [_spread(builder, number, each.dtype.length) for number in numbers])

    return each(x, types.intp, length, count), generate


@intrinsic(prefer_literal=True)
def spread_down(typing, x, i, j, length, count):
    """The `count` vectors with x[i + k, j] in every lane."""
    return _spread_numbers(x, length, count, down=True)


@intrinsic(prefer_literal=True)
def spread_along(typing, x, i, j, length, count):
    """The `count` vectors with x[i, j + k] in every lane."""
    return _spread_numbers(x, length, count, down=False)


def _spread_numbers(x, length, count, *, down):
    each = types.UniTuple(Lanes(x.dtype, length.literal_value), count.literal_value)

    def generate(context, builder, signature, args):
        lanes = []
        for k in range(each.count):
            i, j = args[1:3]
            step = ir.Constant(ir.IntType(64), k)
            i, j = (builder.add(i, step), j) if down else (i, builder.add(j, step))
            lanes.append(
                _spread(builder, builder.load(_pointer(context, builder, x, args[0], i, j)), each.dtype.length)
            )
        return cgutils.pack_array(builder, lanes)

    return each(x, types.intp, types.intp, length, count), generate


@intrinsic
def one_at(typing, place, like):
    """A vector as long as `like` with 1 in the lane that `place` counts to, if there is one, and 0 elsewhere."""
    return _ones_where("==", like)


@intrinsic
def first_lanes(typing, count, like):
    """A vector as long as `like` with 1 in the first `count` lanes, and 0 elsewhere."""
    return _ones_where(">", like)


def _ones_where(relation, like):
    """1 in the lanes to whose place a number stands in this relation, and 0 elsewhere."""

    def generate(context, builder, signature, args):
        lanes = ir.Constant(ir.VectorType(ir.IntType(64), like.length), list(range(like.length)))
        is_there = builder.icmp_signed(relation, _spread(builder, args[0], like.length), lanes)
        return builder.uitofp(is_there, context.get_value_type(like))

    return like(types.int64, like), generate


@intrinsic
def store_across(typing, x, i, j, lanes):
    """x[i + k, j] <- lanes[k]."""

    def generate(context, builder, signature, args):
        for k in range(lanes.length):
            row = builder.add(args[1], ir.Constant(ir.IntType(64), k))
            number = builder.extract_element(args[3], ir.Constant(ir.IntType(32), k))
            builder.store(number, _pointer(context, builder, x, args[0], row, args[2]))

    return types.void(x, types.intp, types.intp, lanes), generate


@intrinsic
def add_to_listed(typing, x, first, rows, n, i, j, each):
    """x[first + rows[n, i + k], j : j + length] += each[k]."""

    def generate(context, builder, signature, args):
        array, first, listed, n, i, j, sums = args
        for k, lanes in enumerate(cgutils.unpack_tuple(builder, sums, each.count)):
            place = builder.add(i, ir.Constant(ir.IntType(64), k))
            row = builder.load(_pointer(context, builder, rows, listed, n, place))
            row = builder.add(first, builder.sext(row, ir.IntType(64)))
            before = _load(context, builder, x, array, row, j, lanes=each.dtype)
            _store(context, builder, x, array, row, j, builder.fadd(before, lanes))

    return types.void(x, types.intp, rows, types.intp, types.intp, types.intp, each), generate


@intrinsic(prefer_literal=True)
def zero_each(typing, x, length, count):
    """`count` vectors of zeros of the type of x's entries."""
    each = types.UniTuple(Lanes(x.dtype, length.literal_value), count.literal_value)

    def generate(context, builder, signature, args):
        return ir.Constant(context.get_value_type(each), None)

    return each(x, length, count), generate


@intrinsic
def multiply_add_each(typing, each_a, b, each_c):
    """a_i b + c_i."""

    def generate(context, builder, signature, args):
        pairs = zip(*(cgutils.unpack_tuple(builder, args[k], each_a.count) for k in (0, 2)), strict=True)
        return cgutils.pack_array(builder, [_multiply_add(builder, a, args[1], c) for a, c in pairs])

    return each_c(each_a, b, each_c), generate


@intrinsic
def sum_of_products(typing, each_a, each_b):
    """sum_i a_i b_i."""

    def generate(context, builder, signature, args):
        pairs = zip(*(cgutils.unpack_tuple(builder, arg, each_a.count) for arg in args), strict=True)
        first, *rest = pairs
        result = builder.fmul(*first)
        for a, b in rest:
            result = _multiply_add(builder, a, b, result)
        return result

    return each_a.dtype(each_a, each_b), generate


@intrinsic
def total_each(typing, each):
    """The sum of the lanes of each vector, as one vector; their number divides that of the lanes."""
    totals = Lanes(each.dtype.dtype, each.count)

    def generate(context, builder, signature, args):
        vectors = cgutils.unpack_tuple(builder, args[0], each.count)
        while len(vectors) > 1:
            vectors = [_add_neighbors(builder, *vectors[i : i + 2]) for i in range(0, len(vectors), 2)]
        (sums,) = vectors
        while sums.type.count > each.count:
            sums = _add_neighbors(builder, sums)
        return sums

    return totals(each), generate


def _pointer(context, builder, array_type, array, *place):
    """The address of an entry, from the array's fields as they are: numba's own way copies the array to memory."""
    model = context.data_model_manager[array_type]
    data, shape, strides = (
        builder.extract_value(array, model.get_field_position(name)) for name in ("data", "shape", "strides")
    )
    lengths, steps = (cgutils.unpack_tuple(builder, numbers, len(place)) for numbers in (shape, strides))
    return cgutils.get_item_pointer2(context, builder, data, lengths, steps, array_type.layout, list(place))


def _load(context, builder, array_type, array, *place, lanes):
    pointer = _pointer(context, builder, array_type, array, *place)
    vector = context.get_value_type(lanes)
    loaded = builder.load(builder.bitcast(pointer, vector.as_pointer()))
    loaded.align = array_type.dtype.bitwidth // 8
    return loaded


def _store(context, builder, array_type, array, i, j, lanes):
    pointer = _pointer(context, builder, array_type, array, i, j)
    stored = builder.store(lanes, builder.bitcast(pointer, lanes.type.as_pointer()))
    stored.align = array_type.dtype.bitwidth // 8


def _spread(builder, number, length):
    vector = ir.VectorType(number.type, length)
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(ir.IntType(32), length), None))


def _maximum(builder, a, b):
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


def _multiply_add(builder, a, b, c):
    return _call(builder, "llvm.fmuladd", [a, b, c])


def _add_neighbors(builder, *vectors):
    """The sums of lanes 0 and 1, 2 and 3, ... of one or two vectors, side by side."""
    first, last = vectors[0], vectors[-1]
    count = first.type.count * len(vectors)
    halves = [ir.Constant(ir.VectorType(ir.IntType(32), count // 2), list(range(begin, count, 2))) for begin in (0, 1)]
    return builder.fadd(*(builder.shuffle_vector(first, last, half) for half in halves))


def _transposed(builder, vectors):
    """As many vectors as each has lanes, with vector i's lane j in vector j's lane i.

    At each distance d = 1, 2, 4, ... vectors i and i + d exchange the lanes in which their numbers differ by d.
    """
    length, distance = len(vectors), 1
    while distance < length:
        pairs = {}
        for i in (i for i in range(length) if not i & distance):
            a, b = vectors[i], vectors[i + distance]
            low = [lane + (length - distance) * bool(lane & distance) for lane in range(length)]
            high = [lane + (length if lane & distance else distance) for lane in range(length)]
            for k, lanes in ((i, low), (i + distance, high)):
                pairs[k] = builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), length), lanes))
        vectors, distance = [pairs[k] for k in range(length)], 2 * distance
    return vectors


def _reduce(builder, lanes, combine):
    """Combine the lower half of the lanes with the upper half until one lane is left."""
    while lanes.type.count > 1:
        half = lanes.type.count // 2
        lower, upper = (
            builder.shuffle_vector(
                lanes, lanes, ir.Constant(ir.VectorType(ir.IntType(32), half), list(range(begin, begin + half)))
            )
            for begin in (0, half)
        )
        lanes = combine(lower, upper)
    return builder.extract_element(lanes, ir.Constant(ir.IntType(32), 0))


def _call(builder, name, args):
    """One of LLVM's own functions of vectors of one type."""
    vector = args[0].type
    kind = ir.FunctionType(vector, [vector] * len(args))
    suffix = f"v{vector.count}{vector.element.intrinsic_name}"
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"{name}.{suffix}"), args)
