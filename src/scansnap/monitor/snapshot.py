"""Snapshots of a model's attention: passes over the probe, reduced to a number for each quantity, layer and head.

What is measured of an attention is reduced to a few numbers for each head at once, on its device, so that no layer's
weights outlive it, except those of the rows that are followed from one snapshot to the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from scansnap.monitor.attention import AttentionCall, AttentionKind, every_row, visible_keys
from scansnap.monitor.capture import (
    AllCaptured,
    AnnouncedModule,
    Capture,
    OutputRecorder,
    configured,
    settings_in_training,
    settings_to_try,
)
from scansnap.monitor.cuda_graph import GraphReplay
from scansnap.monitor.dataset import FINITE, SnapshotRecord
from scansnap.monitor.isolation import (
    SideEffects,
    free_gathered,
    gather,
    head_shard,
    is_distributed,
    is_sharded,
    is_tensor_parallel,
    isolated,
    named_modules,
    sum_of_processes,
    unwrapped,
)
from scansnap.monitor.probe import PATTERN_SIZE, Piece, Probe
from scansnap.monitor.projections import find_projections
from scansnap.monitor.quantities import HeadQuantity, QuantityError, Rows, Sample, lacks_memory
from scansnap.monitor.reductions import Reductions
from scansnap.runtime.errors import InputError, ScanSnapError

Result = TypeVar("Result")

MAX_FOLLOWED = 1 << 25
"""The most weights of all layers that are kept between snapshots to see what moved: 128 MiB in float32.  Where the
sampled rows have more, fewer of them are followed; where all rows are asked for, all are followed."""

CHECKED_ROWS = 16
"""Rows of each window by which a layer's kind is found and its capture checked."""


DECODER_MASK_PREFIXES = ("decoder", "tgt")
"""How the names of masks begin that are of a decoder's tokens, which the queries of cross-attention are."""


class NoAttention(InputError):
    """A model whose attention is not captured as long as it is not announced."""


@dataclass
class LayerCapture:
    """One attention of the model, as the first pass captured it."""

    name: str
    kind: AttentionKind
    windows: int
    heads: int
    queries: int
    keys: int
    width: int
    query_mask: str = ""  # the name of the mask of queries that are not padding
    key_mask: str = ""
    head_shard: tuple[int, int] = (0, 1)  # (rank, world size) of the tensor-parallel group that splits the heads
    before: Tensor | None = None  # weights of the rows that are followed, at the snapshot before
    has_before: bool = False


def most_heads(layers: Mapping[str, LayerCapture]) -> int:
    """The most heads of a layer."""
    return max((layer.heads for layer in layers.values()), default=0)


def pattern_shape(layers: Mapping[str, LayerCapture]) -> tuple[int, int]:
    """The rows and keys of a pattern."""
    queries = max((layer.queries for layer in layers.values()), default=0)
    keys = max((layer.keys for layer in layers.values()), default=0)
    return min(PATTERN_SIZE, queries), min(PATTERN_SIZE, keys)


def _hides(logits: Tensor, is_real: Tensor, rows: Tensor | None) -> bool:
    """Whether attention hides the keys (B, S) that are not real from all rows (B, r), or from those that are real.

    `rows` are given if queries and keys are the same tokens.
    """
    if not bool(is_real.any(1).all()):
        return False
    is_seen = (logits != -math.inf) & ~is_real[:, None, None]
    if rows is not None:
        is_seen &= is_real.take_along_dim(rows, 1)[:, None, :, None]
    return not bool(is_seen.any())


def _module_of(layer: str) -> str:
    """The name of the module that a layer is a call of."""
    return layer.partition(" (call ")[0]


def _is_inside(name: str, other: str) -> bool:
    """Whether a module is, holds or is held by another, by their names."""
    return name == other or name.startswith(f"{other}.") or other.startswith(f"{name}.")


class SnapshotPass:
    """Receives the attention of the passes of one snapshot, and reduces it; a first pass finds the layers instead.

    A failure is kept until the end of a pass, so that it does not stop the model halfway.
    """

    def __init__(
        self,
        probe: Probe,
        record: Sequence[HeadQuantity],
        layers: dict[str, LayerCapture],
        *,
        is_first: bool = False,
        modules: Mapping[str, nn.Module] | None = None,
        ends_early: bool = False,
        with_pattern: bool = True,
    ) -> None:
        """`ends_early` lets a pass end with the last attention; a first pass reads `modules` by name."""
        self.layers, self.is_first, self._modules = layers, is_first, modules or {}
        self.failure: Exception | None = None
        self._probe, self._ends_early, self._with_pattern = probe, ends_early, with_pattern
        self._with_vectors = any(quantity.vectors for quantity in record)
        self.reductions = Reductions(record, len(layers), most_heads(layers), probe.device)
        shape = len(layers), most_heads(layers), *pattern_shape(layers)
        self.pattern = torch.full(shape, math.nan, dtype=torch.float32, device=probe.device)
        self._number = {name: i for i, name in enumerate(layers)}
        self._captured: set[str] = set()  # in this pass
        self.absent = set(layers)  # layers that no pass has captured

    def start(self, piece: Piece) -> None:
        """Begin a pass over this piece."""
        self._piece = piece
        self._captured.clear()

    def add(self, name: str, call: AttentionCall) -> None:
        """Measure a call."""
        self._captured.add(name)
        self.absent.discard(name)
        if self.failure is not None:
            return
        try:
            if self.is_first:
                self._find(name, call)
            elif name in self.layers:
                self._measure(self.layers[name], call)
                self._keep_pattern(self.layers[name], call)
        except Exception as error:
            self.failure = error

    def checked_rows(self, name: str) -> Tensor:
        """The rows (B, r) of a layer that are replaced by what the weights give."""
        layer = self.layers[name]
        return self._probe.positions(self._piece, layer.windows, layer.queries)[:, :CHECKED_ROWS]

    def raise_failure(self) -> None:
        """Raise what has failed, if anything.

        It is not kept: a failure holds the frames that it came through, and these hold this object and the tensors of
        the pass, which would wait for the garbage collector while a smaller piece needs their memory.
        """
        failure, self.failure = self.failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            del failure

    def is_complete(self) -> bool:
        """Whether this pass has captured all that it is for."""
        return self._ends_early and not self.is_first and len(self._captured) == len(self.layers)

    def _find(self, name: str, call: AttentionCall) -> None:
        windows, heads, queries, keys = call.sizes
        rows = self._probe.positions(self._piece, windows, queries)[:, :CHECKED_ROWS]
        kind, logits = call.kind(rows), call.logits(rows)
        masks = self._probe.masks(self._piece, windows, keys)
        fitting = [m for m, is_real in masks.items() if _hides(logits, is_real, None if kind == "cross" else rows)]
        informative = [m for m in fitting if not bool(masks[m].all())]
        key_mask = informative[0] if informative else fitting[0] if len(fitting) == 1 else ""
        masks = self._probe.masks(self._piece, windows, queries)
        decoder_masks = [mask for mask in masks if mask.startswith(DECODER_MASK_PREFIXES)]
        query_mask = key_mask if kind != "cross" else decoder_masks[0] if decoder_masks else ""
        module = self._modules.get(_module_of(name))
        shard = (0, 1) if module is None else head_shard(module)
        self.layers[name] = LayerCapture(
            name, kind, windows, heads, queries, keys, call.width, query_mask, key_mask, shard
        )

    def _measure(self, layer: LayerCapture, call: AttentionCall) -> None:
        windows, heads, queries, keys = call.sizes
        if heads != layer.heads:
            raise ScanSnapError(f"{layer.name} has {heads} heads, and had {layer.heads} when the watch was made")
        piece, is_self = self._piece, layer.kind != "cross"
        rows = self._probe.positions(piece, windows, queries)
        is_real = self._probe.masks(piece, windows, queries).get(layer.query_mask)
        real_keys = self._probe.masks(piece, windows, keys).get(layer.key_mask)
        first = rows.new_zeros(windows, 1) if real_keys is None else real_keys.int().argmax(1, keepdim=True)
        documents = self._probe.first_of_documents(piece, windows, queries) if is_self and queries == keys else None
        tokens = self._probe.key_tokens(piece, windows, keys) if is_self else None
        has_first_pass_shape = (queries, keys) == (layer.queries, layer.keys)
        if self._probe.function is not None:  # it may call the model with what it likes
            has_first_pass_shape &= windows == layer.windows
        start = 0
        for chunk in call.chunks(rows):
            logits = call.logits(chunk)
            visible, weights = visible_keys(logits), call.weights(logits)
            if is_real is not None:  # what padding attends to does not count
                visible = visible * is_real.take_along_dim(chunk, 1)[:, None]
            start_of_row = first.expand_as(chunk)
            if documents is not None:
                start_of_row = torch.maximum(start_of_row, documents.take_along_dim(chunk, 1))
            vectors = call.vectors(chunk) if self._with_vectors else {}
            known = {"tokens": tokens, "vocabulary": None if tokens is None else self._probe.vocabulary, **vectors}
            has_sink = call.sink is not None
            measured = Rows(weights, logits, visible, chunk, start_of_row, is_self, has_sink, **known)
            self._add(layer, measured, start, has_first_pass_shape)
            start += chunk.shape[1]

    def _keep_pattern(self, layer: LayerCapture, call: AttentionCall) -> None:
        """Keep the attention among the first tokens of the first window."""
        _, _, queries, keys = call.sizes
        if self._with_pattern and self._piece.start == 0 and (queries, keys) == (layer.queries, layer.keys):
            rows = every_row(1, min(PATTERN_SIZE, queries), self.pattern.device)
            pattern = call.first_window().weights_of(rows)[0, ..., :PATTERN_SIZE]
            self.pattern[self._number[layer.name]][tuple(map(slice, pattern.shape))] = pattern

    def _add(self, layer: LayerCapture, rows: Rows, start: int, has_first_pass_shape: bool) -> None:
        """Add some rows; `start` counts those of each window before them."""
        piece = self._piece
        own = len(rows.weights) * piece.windows // (piece.windows + piece.repeated)
        samples: dict[Sample, Rows] = {"probe": rows.part(slice(own))}
        if piece.repeated and layer.kind != "cross":
            tokens = self._probe.repeated_tokens(layer.keys, piece.repeated)
            samples["repeated"] = replace(rows.part(slice(own, None)), tokens=tokens)
        followed = self._followed(layer, samples["probe"], start) if piece.follow and has_first_pass_shape else None
        self.reductions.add(self._number[layer.name], samples, followed, has_before=layer.has_before)

    def _followed(self, layer: LayerCapture, rows: Rows, start: int) -> Tensor | None:
        """Where the weights of these rows, or of the first of them, are kept between snapshots."""
        windows, heads, number, keys = rows.weights.shape
        share = windows // self._piece.windows
        if layer.before is None:
            total = self._probe.followed_windows * share
            every = self._probe.positions(self._piece, layer.windows, layer.queries).shape[1]
            most = every if self._probe.rows is None else MAX_FOLLOWED // (len(self.layers) * total * heads * keys)
            layer.before = rows.weights.new_empty(total, heads, max(1, min(every, most)), keys)
        number = min(layer.before.shape[2] - start, number)
        return layer.before[self._piece.start * share :][:windows, :, start : start + number] if number > 0 else None


class SnapshotTaker:
    """Takes snapshots of a model on a probe.

    A snapshot holds the tensors of a forward pass over one piece of the probe without gradients; 20 bytes for each of
    the `MAX_WEIGHTS` weights that are computed at once; queries and keys of one layer in float32; a copy of the model's
    buffers; and 4 bytes for each of at most `MAX_FOLLOWED` weights that are kept for the next one.
    """

    def __init__(
        self,
        model: nn.Module,
        probe: Probe,
        record: Sequence[HeadQuantity],
        *,
        announced: Sequence[AnnouncedModule] = (),
        with_pattern: bool = True,
        max_windows: int | None = None,
        all_ranks: bool = False,
    ) -> None:
        """A piece of the probe has at most `max_windows` windows.

        With `all_ranks` every process takes part, and the heads and layers that each measured are gathered.
        """
        self._with_pattern, self._max_windows = with_pattern, max_windows
        self._model = unwrapped(model)
        self.gathers = all_ranks and is_distributed()
        self._is_sharded = is_sharded(self._model)
        self.is_shared = self.gathers or self._is_sharded  # whether all processes run the model
        if is_tensor_parallel(self._model) and not self.gathers:
            raise InputError(
                f"{type(self._model).__name__} is tensor-parallel: its processes compute each layer together, and a "
                'snapshot in one of them would mix with the others; give ranks="all" in every process.'
            )
        self.probe, self.record = probe, tuple(record)
        self._own: dict[str, LayerCapture] = {}  # what this process computes of the layers
        self.layers: dict[str, LayerCapture] = {}  # of all processes
        self.announced = list(announced)
        self.not_captured: tuple[str, ...] = ()  # modules that attend, and whose attention is not captured
        self._found: dict[str, nn.Module] = {}  # modules whose softmax is captured without being announced
        self._settings: dict[str, Any] = {}  # of the configurations of a Hugging Face model during a snapshot
        self._origin: int | None = None  # the layer that was the first whose logits were not finite
        self._failures: dict[str, QuantityError] = {}  # of the last snapshot that was not a replay
        self._absent: set[str] = set()  # layers that were not captured in it
        self.is_nondeterministic = False  # whether two runs of the model differ, so that nothing is checked
        self._replay = GraphReplay(self._model, probe.device)

    def find_layers(self) -> None:
        """Find which modules attend, and how; refused if there are none."""
        self._in_pieces(self._find_layers)

    def take(self) -> SnapshotRecord:
        """Measure the model as it is now, in smaller and smaller pieces if that fails."""
        return self._in_pieces(self._take)

    def coverage(self) -> str:
        """A sentence on which attention is captured."""
        captured = {_module_of(layer) for layer in self.layers}
        words = f"{len(captured)} of {len(captured) + len(self.not_captured)} attention modules captured"
        by_function = captured & {name for name, a in self._announced_names().items() if a.queries_and_keys is not None}
        if by_function:
            words += f", {len(by_function)} of them by your function, which cannot be checked"
        words += f"; not captured: {', '.join(self.not_captured)}" if self.not_captured else ""
        note = "; not checked, since the model returns something else each time"
        return words + note * self.is_nondeterministic

    def _announced_names(self) -> dict[str, AnnouncedModule]:
        """The modules that were announced, by name."""
        names = {id(module): name for name, module in named_modules(self._model).items()}
        return {names[id(a.module)]: a for a in self.announced if id(a.module) in names}

    def followed(self, windows: int) -> Tensor:
        """Attention of the first windows at the last snapshot (layer, head, window, T, S); all rows are followed."""
        weights = []
        for layer in self.layers.values():
            assert layer.before is not None
            weights.append(layer.before[:windows].transpose(0, 1).nan_to_num(0.0))  # rows that see no key
        return torch.stack(weights)

    def _in_pieces(self, action: Callable[[], Result]) -> Result:
        """Do something, again in smaller and smaller pieces if it fails."""
        while True:
            try:
                return action()
            except Exception as error:
                for layer in self._own.values():
                    layer.has_before = False  # what was followed may not be whole
                windows = self._max_windows or self.probe.windows
                if not isinstance(error, ScanSnapError):
                    self._replay.drop()
                if isinstance(error, ScanSnapError) or windows == 1 or self.probe.batch_dim is None:
                    raise
                self._max_windows = math.ceil(windows / 2)

    def _find_layers(self) -> None:
        piece = next(self.probe.pieces(self._max_windows, repeat=False))
        untouched, refusal = self._run_untouched(piece), None
        to_try = settings_to_try(self._model)
        for self._settings in to_try:
            try:
                refusal = self._capture_first(piece, untouched)
            except (ValueError, NotImplementedError) as error:  # it has no such implementation
                if self._settings is to_try[-1] or isinstance(error, ScanSnapError):
                    raise
                continue
            if refusal is None:
                break
        if refusal is not None:
            raise refusal
        if all(layer.keys < 2 for layer in self.layers.values()):
            raise InputError("the probe has one token, which has nothing to choose from: give windows of several.")
        self.probe.find_windows(piece, [(layer.windows, layer.queries) for layer in self._own.values()])

    def _capture_first(self, piece: Piece, untouched: OutputRecorder | None) -> InputError | None:
        """Find the layers in a captured pass; returns why it is refused if modules then return something else."""
        first = SnapshotPass(self.probe, self.record, {}, is_first=True, modules=named_modules(self._model))
        self._found = {}
        with OutputRecorder(self._model) as outputs:
            _, capture = self._run([piece], first)
        self._own = {name: layer for name, layer in first.layers.items() if _module_of(name) not in capture.changed}
        self._found = {name: module for name, module in capture.found.items() if name not in capture.changed}
        within = [_module_of(name) for name in self._own]
        missed: list[str] = []
        for name in [*outputs.attention_modules(), *capture.unread, *capture.changed, *self._announced_names()]:
            if not any(_is_inside(name, other) for other in [*within, *missed]):
                missed.append(name)
        self.layers, self.not_captured = self._own, tuple(missed)
        if self.gathers:
            self._gather_layers()
        if not self.layers:
            name = type(self._model).__name__
            if self.announced:
                last = self.announced[-1]
                raise NoAttention(
                    f"{type(last.module).__name__} was announced but "
                    + (
                        "computes no softmax over keys: give queries_and_keys=, a function that returns them."
                        if last.queries_and_keys is None
                        else "does not run on the probe: announce a module that does."
                    )
                )
            raise NoAttention(
                f"no attention was captured in {name} ({self.coverage()}): where it is written by hand, announce the "
                "modules that compute it with watch.attention(module) before the first step."
            )
        difference = untouched and untouched.first_difference(outputs)
        if not self._any_process(bool(difference)):
            return None
        self.is_nondeterministic = self._any_process(self._is_nondeterministic(piece, untouched))
        if self.is_nondeterministic:
            return None
        name, error = difference or ("another process", math.nan)
        name = next((layer for layer in self.layers if _is_inside(name, layer)), name)
        return InputError(
            f"the attention captured in {name} does not give what the model computes: an output differs by {error:.1g} "
            "of the largest; report the model's class, or announce the module with watch.attention(module, "
            "queries_and_keys=...)."
        )

    def _run_untouched(self, piece: Piece) -> OutputRecorder | None:
        """What the modules return without capture; None if there is not enough memory for it."""
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # training does not use it, and it leaves out padding
        try:
            recorder = OutputRecorder(self._model)
            settings = settings_in_training(self._model)
            with isolated(self._model, self._is_sharded), configured(self._model, settings), recorder as outputs:
                piece.call(self._model)
        except Exception as error:
            if not lacks_memory(error):
                raise
            return None
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            if self._is_sharded:
                free_gathered(self._model)
        return outputs

    def _is_nondeterministic(self, piece: Piece, untouched: OutputRecorder | None) -> bool:
        """Whether two runs of the untouched model differ."""
        again = self._run_untouched(piece)
        return untouched is None or again is None or untouched.first_difference(again) is not None

    def _take(self) -> SnapshotRecord:
        if not self.layers:
            self._find_layers()
        tensors = self._replay.run()
        if tensors is None:
            tensors = self._take_and_capture()
            for layer in self._own.values():
                layer.has_before = layer.before is not None
        return self._read(*tensors)

    def _take_and_capture(self) -> tuple[Tensor, ...]:
        """Measure without a graph, and capture a graph if the next snapshots can be its replay."""
        followed = [layer.before for layer in self._own.values() if layer.before is not None]
        may_capture = self._replay.may_capture and not (
            self.is_shared
            or self.probe.function
            or self._has_hooks()
            or any(quantity.sample == "gradients" for quantity in self.record)  # they are other tensors each time
            or any(layer.before is None or not layer.has_before for layer in self._own.values())
        )
        before = [weights.clone() for weights in followed] if may_capture else []
        tensors, effects = self._measure()
        if may_capture and not effects.any and not self._failures:
            now = [weights.clone() for weights in followed]
            for weights, value in zip(followed, before, strict=True):
                weights.copy_(value)
            self._replay.capture(lambda: self._measure()[0], tensors)
            for weights, value in zip(followed, now, strict=True):
                weights.copy_(value)
        return tensors

    def _measure(self) -> tuple[tuple[Tensor, ...], SideEffects]:
        """Quantities (quantity, layer, head), patterns, and which heads have logits that are not finite."""
        snapshot = SnapshotPass(
            self.probe,
            self.record,
            self._own,
            with_pattern=self._with_pattern,
            ends_early=not self.is_shared and not self._has_hooks(),
        )
        self._failures = snapshot.reductions.failures
        repeat = any(quantity.sample == "repeated" for quantity in self.record)
        effects, _ = self._run(self.probe.pieces(self._max_windows, repeat=repeat), snapshot)
        self._absent = snapshot.absent
        values = snapshot.reductions.values()
        self._measure_projections(snapshot.reductions, values)
        measured = values, snapshot.pattern, snapshot.reductions.is_bad
        return self._gather_measured(*measured) if self.gathers else measured, effects

    def _run(self, pieces: Iterable[Piece], snapshot: SnapshotPass) -> tuple[SideEffects, Capture]:
        """Run the model on pieces of the probe; all processes fail if one of them does."""
        with isolated(self._model, self._is_sharded) as effects:
            for piece in pieces:
                snapshot.start(piece)
                capture = Capture(
                    self._model,
                    piece.windows + piece.repeated,
                    self.announced,
                    snapshot,
                    found=self._found,
                    lengths=self.probe.lengths(piece),
                    settings=self._settings,
                )
                try:
                    with capture:
                        piece.call(self._model)
                except AllCaptured:
                    pass
                except Exception as error:
                    snapshot.failure = snapshot.failure or error
                if self._is_sharded:
                    free_gathered(self._model)
                if self._any_process(snapshot.failure is not None) and snapshot.failure is None:
                    snapshot.failure = RuntimeError("the snapshot failed in another process")
                snapshot.raise_failure()
        return effects, capture

    def _any_process(self, flag: bool) -> bool:
        """Whether the flag is true in any process."""
        return sum_of_processes(flag, self.probe.device) > 0 if self.is_shared else flag

    def _gather_layers(self) -> None:
        """The layers of all processes, each with all of its heads; their modules have different names."""
        own = [replace(layer, before=None) for layer in self._own.values()]
        parts = gather((own, self.not_captured))
        found = {layer.name: layer for layers, _ in reversed(parts) for layer in layers}
        names = dict.fromkeys(layer.name for layers, _ in parts for layer in layers)
        self.layers = {
            name: replace(found[name], heads=found[name].heads * found[name].head_shard[1]) for name in names
        }
        self.not_captured = tuple(dict.fromkeys(name for _, missed in parts for name in missed))

    def _gather_measured(self, *measured: Tensor) -> tuple[Tensor, ...]:
        """What all processes have measured: quantities, patterns, and which heads have logits that are not finite."""
        heads, number = most_heads(self.layers), {name: i for i, name in enumerate(self.layers)}
        values = torch.full((len(self.record), len(number), heads), math.nan, dtype=torch.float64)
        pattern = torch.full((len(number), heads, *pattern_shape(self.layers)), math.nan, dtype=torch.float32)
        is_bad = torch.zeros((len(number), heads), dtype=torch.bool)
        own = [(layer.name, layer.heads, layer.head_shard[0]) for layer in self._own.values()]
        parts = gather((own, [t.cpu() for t in measured], self._absent))
        self._absent = set[str]().union(*(absent for _, _, absent in parts))
        for layers, (their_values, their_pattern, are_bad), _ in reversed(parts):
            for i, (name, count, place) in enumerate(layers):
                where = number[name], slice(place * count, (place + 1) * count)
                values[:, *where] = their_values[:, i, :count]
                is_bad[where] = are_bad[i, :count]
                rows, keys = their_pattern.shape[2:]
                pattern[(*where, slice(rows), slice(keys))] = their_pattern[i, :count]
        return values, pattern, is_bad

    def _has_hooks(self) -> bool:
        """Whether hooks may count on a forward pass that runs, and runs to its end."""
        return any(module._forward_hooks or module._forward_pre_hooks for module in self._model.modules())

    def _read(self, values: Tensor, pattern: Tensor, is_bad: Tensor) -> SnapshotRecord:
        finite, reason = np.where(is_bad.cpu().numpy(), 0.0, 1.0), ""
        for row, layer in zip(finite, self.layers.values(), strict=True):
            row[0 if layer.name in self._absent else layer.heads :] = math.nan
        if absent := [name for name in self.layers if name in self._absent]:
            more = f" (and {len(absent) - 1} more)" if len(absent) > 1 else ""
            reason = f"the attention of {absent[0]}{more} was not captured: make another watch if the model has changed"
        bad = np.flatnonzero((finite == 0).any(1)).tolist()
        self._origin = self._origin if self._origin in bad else bad[0] if bad else None
        if self._origin is not None:
            finite[[layer for layer in bad if layer != self._origin]] = math.nan  # it made the others so
            more = ", nor are those of other layers" if len(bad) > 1 else ""
            reason = f"the attention logits of {list(self.layers)[self._origin]} are not finite{more}"
        numbers = {q.name: number for q, number in zip(self.record, values.cpu().numpy(), strict=True)}
        return SnapshotRecord(numbers | {FINITE: finite}, pattern.cpu().numpy(), reason, self._failures)

    def _measure_projections(self, reductions: Reductions, values: Tensor) -> None:
        """Write the quantities of projections into `values` (quantity, layer, head)."""
        for number, quantity in enumerate(self.record):
            if quantity.sample not in ("projections", "gradients"):
                continue
            modules, attribute = named_modules(self._model), "grad" if quantity.sample == "gradients" else "data"
            for i, layer in enumerate(self._own.values()):
                module = modules.get(_module_of(layer.name))
                found = None if module is None else find_projections(module, layer.heads, layer.width, attribute)
                numbers = None if found is None else reductions.values_of(quantity, found, found.query.shape[:1])
                if numbers is not None:
                    values[number, i, : len(numbers)] = numbers
