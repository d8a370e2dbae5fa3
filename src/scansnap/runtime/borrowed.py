"""Named tuples of arrays as compiled code should pass them: by one address, without counting references.

Passed by value, a tuple of twenty arrays is two hundred arguments of every function that takes it, and most of the time
to compile is spent on them.  And whenever compiled code takes an array from a tuple it counts a reference; of those in
loops it cannot prove that they cancel, which took a fifth of the time to run.  Whoever calls compiled code keeps the
arrays alive.
"""

from __future__ import annotations

import zlib

from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import models, register_model


class Borrowed(types.Type):
    """The address of a named tuple; its fields are read as `tuple.field`."""

    def __init__(self, fields):
        self.fields = fields
        super().__init__(name=f"Borrowed({fields.instance_class.__name__}, {zlib.crc32(str(fields).encode()):x})")


@register_model(Borrowed)
class _BorrowedModel(models.PrimitiveModel):
    def __init__(self, manager, borrowed):
        super().__init__(manager, borrowed, manager.lookup(borrowed.fields).get_data_type().as_pointer())


@infer_getattr
class _Fields(AttributeTemplate):
    key = Borrowed

    def generic_resolve(self, borrowed, name):
        names = borrowed.fields.fields
        return borrowed.fields.types[names.index(name)] if name in names else None


@lower_getattr_generic(Borrowed)
def _read(context, builder, borrowed, address, name):
    index = borrowed.fields.fields.index(name)
    kind = borrowed.fields.types[index]
    value = context.unpack_value(builder, kind, cgutils.gep_inbounds(builder, address, 0, index))
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = array.parent = cgutils.get_null_value(cgutils.voidptr_t)
        value = array._getvalue()
    return value
