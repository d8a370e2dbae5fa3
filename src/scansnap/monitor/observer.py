"""Looks at a model: passes over the probe in pieces, summed to a number for each quantity, layer and head."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from scansnap.monitor.hugging_face import seen_by
from scansnap.monitor.look import Trace, uncompiled, undisturbed
from scansnap.monitor.probe import Piece, Probe
from scansnap.monitor.processes import any_failed, free_gathered, is_sharded, plain_name
from scansnap.monitor.projections import Projections, find_projections
from scansnap.monitor.quantities import HeadQuantity, QuantityError
from scansnap.monitor.replay import Replay, has_hooks
from scansnap.monitor.sight import AllSeen, Announced, Sight
from scansnap.monitor.sums import groups_of
from scansnap.monitor.tally import SeenLayer, Tally
from scansnap.runtime.errors import InputError, ScanSnapError

Result = TypeVar("Result")

ROUNDING = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 4e-3 if torch.cuda.is_available() else 1e-4}
"""By how much outputs may differ, relative to the largest: a few units in the last place; with TF32, as GPUs may use
for float32, those of its 10 bits."""


class FailedLook(ScanSnapError):
    """A look without a result, which smaller pieces would not change; the message is the reason."""


class NothingSeen(InputError):
    """A model whose attention is not seen as long as it is not announced."""


@dataclass(frozen=True)
class Measured:
    """What a look measured."""

    values: dict[str, NDArray[np.float64]]  # (layer, head); NaN where a logit is not finite
    pattern: NDArray[np.float32]  # (layer, head, row, key)
    finite: NDArray[np.float64]  # (layer, head): 1 if all logits are finite, or 0
    reason: str  # why some of it is not there
    failures: dict[str, QuantityError]  # by the name of the quantity

    def check(self) -> Measured:
        """This, if nothing went wrong."""
        if self.reason:
            raise FailedLook(self.reason)
        for failure in self.failures.values():
            raise failure
        return self


@dataclass(frozen=True)
class BegunLook:
    """A look that a GPU may still be at, while the training goes on; `read` waits for it."""

    is_done: Callable[[], bool]
    read: Callable[[], Measured]


class Observer:
    """Looks at a model on a probe.

    A look holds the tensors of a forward pass over one piece of the probe without gradients; 20 bytes for each of the
    `AT_ONCE` weights that are computed at once; 24 bytes for each of the `TOGETHER` weights of layers that are measured
    together; the keys of one layer in float32; in a graph the queries and keys of all layers; a copy of the model's
    buffers; and 4 bytes for each of at most `FOLLOWED` weights that are kept from look to look.
    """

    def __init__(
        self,
        model: nn.Module,
        probe: Probe,
        record: Sequence[HeadQuantity],
        *,
        shows: bool = True,
        at_most: int | None = None,
    ) -> None:
        """`shows` keeps patterns; a piece has `at_most` windows."""
        self._shows, self._at_most = shows, at_most
        self._repeats = any(quantity.sample == "repeated" for quantity in record)
        self._model = uncompiled(model)
        self.is_sharded = is_sharded(self._model)
        self.probe, self.record = probe, tuple(record)
        self._groups = groups_of(self.record)
        self.layers: dict[str, SeenLayer] = {}
        self.announced: list[Announced] = []
        self.unseen: tuple[str, ...] = ()  # modules with a softmax that looks like attention
        self._origin: int | None = None  # the layer that was the first whose logits were not finite
        self._failures: dict[str, QuantityError] = {}  # of the last look that was not a replay
        self._replay = Replay(self._model, probe.device)

    def learn(self) -> None:
        """See which modules attend, and how; refused if none is seen."""
        self._in_pieces(self._learn)

    def look(self) -> Measured:
        """Measure, in smaller and smaller pieces if that fails."""
        return self.begin().read()

    def begin(self) -> BegunLook:
        """Begin to measure the model as it is now; only what is replayed is not done at once."""
        return self._in_pieces(self._begin)

    def agreement(self) -> str:
        """In words, how far outputs that the weights give are from those that the model computed at the first look."""
        errors = [layer.error for layer in self.layers.values() if not math.isnan(layer.error)]
        if not errors:
            return "not compared with the model's own outputs"
        return f"the weights give the model's own outputs up to {max(errors):.1g} of the largest"

    def disagreement(self) -> str:
        """What is wrong if some output is not what the weights give; empty if all are."""
        wrong = [layer for layer in self.layers.values() if layer.error > ROUNDING.get(layer.dtype, 1e-3)]
        if not wrong:
            return ""
        return (
            f"the attention seen in {wrong[0].name} does not give what the model computed: its output is off by "
            f"{wrong[0].error:.1g} of the largest, more than rounding in {str(wrong[0].dtype).removeprefix('torch.')}; "
            f"do not trust the numbers of {len(wrong)} of {len(self.layers)} layers."
        )

    def followed(self, windows: int) -> Tensor:
        """Attention of the first windows at the last look, where all rows are followed (layer, head, window, T, S)."""
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
                for layer in self.layers.values():
                    layer.has_before = False  # what was followed may not be whole
                windows = self._at_most or self.probe.windows
                if not isinstance(error, ScanSnapError):
                    self._replay.drop()
                if isinstance(error, ScanSnapError) or windows == 1 or self.probe.batch_dim is None:
                    raise
                self._at_most = math.ceil(windows / 2)

    def _learn(self) -> None:
        tally = Tally(self.probe, self._groups, {}, learns=True)
        piece = next(self.probe.pieces(self._at_most, repeat=False))
        self._pass([piece], tally)
        if not tally.layers:
            raise NothingSeen(
                f"no attention was seen in {type(self._model).__name__}: where it is written by hand, announce the "
                "modules that compute it with watch.attention(module)."
            )
        if all(layer.keys < 2 for layer in tally.layers.values()):
            raise InputError("the probe has one token, which has nothing to choose from: give windows of several.")
        self.layers, self.unseen = tally.layers, tally.unseen()
        self.probe.find_windows(piece, [(layer.windows, layer.queries) for layer in self.layers.values()])

    def _begin(self) -> BegunLook:
        if not self.layers:
            self._learn()
        if self._replay.start():
            return BegunLook(self._replay.is_done, lambda: self._read(*self._replay.result()))
        tensors = self._look_afresh()
        for layer in self.layers.values():
            layer.has_before = layer.before is not None
        measured = self._read(*tensors)
        return BegunLook(lambda: True, lambda: measured)

    def _look_afresh(self) -> tuple[Tensor, ...]:
        """Look, and capture the look if the next ones can be its replay."""
        followed = [layer.before for layer in self.layers.values() if layer.before is not None]
        is_settled = self._replay.may_capture and not (
            self.is_sharded
            or self.probe.function
            or has_hooks(self._model)
            or any(layer.before is None or not layer.has_before for layer in self.layers.values())
        )
        before = [weights.clone() for weights in followed] if is_settled else []
        tensors, trace = self._pass_over_probe()
        if is_settled and not trace.is_any and not self._failures:
            now = [weights.clone() for weights in followed]
            for weights, value in zip(followed, before, strict=True):
                weights.copy_(value)
            self._replay.capture(lambda: self._pass_over_probe()[0], tensors)
            for weights, value in zip(followed, now, strict=True):
                weights.copy_(value)
        return tensors

    def _pass_over_probe(self) -> tuple[tuple[Tensor, ...], Trace]:
        tally = Tally(
            self.probe,
            self._groups,
            self.layers,
            shows=self._shows,
            ends_early=not self.is_sharded and not has_hooks(self._model),
        )
        with tally.aside.reading():
            projected = self._projected(tally.sums.failures)
        trace = self._pass(self.probe.pieces(self._at_most, repeat=self._repeats), tally)
        values = tally.sums.values()
        for place, layer, numbers in projected:
            values[place, layer, : numbers.shape[1]] = numbers
        self._failures = tally.sums.failures
        return (values, tally.pattern, tally.sums.is_bad), trace

    def _pass(self, pieces: Iterable[Piece], tally: Tally) -> Trace:
        """Run the model on pieces of the probe; all processes fail if one of them does."""
        names = {id(module): name for name, module in self._modules().items()}
        with undisturbed(self._model, self.is_sharded) as trace:
            for piece in pieces:
                tally.start(piece)
                sight = Sight(names, piece.windows + piece.repeated, self.announced, tally)
                try:
                    with seen_by(sight, self._model), sight:
                        piece.call(self._model)
                except AllSeen:
                    pass
                except Exception as error:
                    tally.failure = tally.failure or error
                tally.finish()
                if self.is_sharded:
                    free_gathered(self._model)
                    if any_failed(tally.failure is not None, self.probe.device) and tally.failure is None:
                        tally.failure = RuntimeError("the look failed in another process")
                tally.raise_failure()
        return trace

    def _read(self, values: Tensor, pattern: Tensor, is_bad: Tensor) -> Measured:
        finite, reason = np.where(is_bad.cpu().numpy(), 0.0, 1.0), ""
        for row, layer in zip(finite, self.layers.values(), strict=True):
            row[layer.heads :] = math.nan
        bad = np.flatnonzero((finite == 0).any(1)).tolist()
        self._origin = self._origin if self._origin in bad else bad[0] if bad else None
        if self._origin is not None:
            finite[[layer for layer in bad if layer != self._origin]] = math.nan  # it made the others so
            more = ", nor are those of other layers" if len(bad) > 1 else ""
            reason = f"the attention logits of {list(self.layers)[self._origin]} are not finite{more}"
        names = [quantity.name for group in self._groups for quantity in group.members]
        numbers = dict(zip(names, values.cpu().numpy(), strict=True))
        return Measured(
            {quantity.name: numbers[quantity.name] for quantity in self.record},
            pattern.cpu().numpy(),
            finite,
            reason,
            self._failures,
        )

    def _modules(self) -> dict[str, nn.Module]:
        """The model's modules by name; the model itself has that of its class."""
        return {plain_name(name) or type(m).__name__: m for name, m in self._model.named_modules()}

    def _projected(self, failures: dict[str, QuantityError]) -> list[tuple[slice, int, Tensor]]:
        """The quantities of projections (quantity, head): their place, and which layer it is.

        Those of layers of the same shape are computed together.
        """
        groups = [group for group in self._groups if group.sample == "projections"]
        if not groups:
            return []
        projected: list[tuple[slice, int, Tensor]] = []
        modules = self._modules()
        alike: dict[tuple[torch.Size, torch.Size], list[tuple[int, Projections]]] = {}
        for i, layer in enumerate(self.layers.values()):
            module = modules.get(layer.name.partition(" (call ")[0])
            shown = module and find_projections(module, layer.heads, layer.key_heads, layer.width)
            if shown:
                alike.setdefault((shown.query.shape, shown.key.shape), []).append((i, shown))
        for layers in alike.values():
            stacked = Projections(
                torch.stack([shown.query.detach() for _, shown in layers]),
                torch.stack([shown.key.detach() for _, shown in layers]),
            )
            shape = stacked.query.shape[:2]
            for group in groups:
                for place, quantity in enumerate(group.members, group.place.start):
                    try:
                        numbers = quantity.of(stacked, shape, torch.float64, stacked.query.device)
                    except QuantityError as error:
                        failures[quantity.name] = error.without_frames()
                        continue
                    projected += [(slice(place, place + 1), i, numbers[None, k]) for k, (i, _) in enumerate(layers)]
        return projected
