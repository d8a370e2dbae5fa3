"""`watch`: follows the attention of any model while it trains."""

from __future__ import annotations

import math
import operator
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from scansnap.monitor.capture import AnnouncedModule
from scansnap.monitor.dataset import (
    LEARNING_RATE,
    LOSS,
    SnapshotRecord,
    is_other_model,
    list_snapshots,
    make_dataset,
)
from scansnap.monitor.isolation import is_first_process, sum_of_processes
from scansnap.monitor.options import WatchOptions, takes_watch_options
from scansnap.monitor.probe import Probe
from scansnap.monitor.quantities import HeadQuantity, lacks_memory, quantities
from scansnap.monitor.sinks import head_metrics
from scansnap.monitor.snapshot import (
    NoAttention,
    SnapshotTaker,
    most_heads,
    pattern_shape,
)
from scansnap.monitor.store import SnapshotStore, read_snapshots
from scansnap.monitor.verdict_rules import HEAD_VERDICTS
from scansnap.monitor.verdicts import HeadVerdict, judge_heads
from scansnap.runtime.errors import InputError, ScanSnapError, StoreError, brief, short_repr
from scansnap.storage.provenance import WATCH_KIND, attributes
from scansnap.validation.argument_types import InstanceType
from scansnap.validation.checks import type_name
from scansnap.validation.options import from_names
from scansnap.validation.validate import validated

CLOSED_MESSAGE = "the watch is closed: make another one to take more snapshots."

IDLE_MESSAGE = "this process takes no snapshots: the first process does, so ask there."

LIBRARY_PATHS = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))
"""Paths to skip when finding the user's frame for a warning: this package, and torch with its decorators."""


@takes_watch_options(WatchOptions)
@validated
def watch(model: Annotated[nn.Module, InstanceType(nn.Module, "a torch.nn.Module")], **options: Any) -> Watch:
    """Follow the attention of a model while it trains; the model is not modified.

    Parameters
    ----------
    model : nn.Module
        Any model; compiled and distributed ones too.
    {options}

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    >>> watch = ss.watch(model, probe=torch.randn(2, 12, 16), every=1)
    >>> watch.step()
    >>> print(watch.dataset["entropy"].dims)
    ('step', 'layer', 'head')
    """
    return Watch(model, from_names(WatchOptions, options))


class Watch:
    """Takes a snapshot of a model's attention every `every` steps; made by `watch`.

    `continues_from` is the last step that was in the store before, or None.

    >>> import torch
    >>> model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    >>> watch = ss.watch(model, probe=torch.randn(2, 12, 16), every=1)
    >>> watch.step()
    >>> print(len(watch.verdicts))
    0
    """

    def __init__(self, model: nn.Module, options: WatchOptions) -> None:
        self.every = options.every
        self._model, self._options = model, options
        self._raises = options.errors == "raise"
        self._on_alarm = options.on_alarm if is_first_process() else None
        self._alarms: set[tuple[str, int, int]] = set()  # alarms already reported
        self._loss: Tensor | float = math.nan  # the loss passed to the last step()
        self._sinks = options.sinks if is_first_process() else ()
        with torch.inference_mode(False):
            probe = Probe(options.probe, options.rows, _device(model))
            self._taker = self._make_taker(probe, quantities(options.record))
        self._is_idle = not is_first_process() and not self._taker.is_shared
        self._notice: InputError | str | None = None  # at the next step: a refusal, or once a warning
        self._warned: set[str] = set()
        self._store = None if options.store is None or not is_first_process() else SnapshotStore(options.store)
        try:
            self._snapshots = (
                [] if self._store is None or self._store.last_step is None else list_snapshots(self.dataset)
            )
            self.continues_from = last = self._snapshots[-1].step if self._snapshots else None
            if options.start is None and self._taker.is_shared:  # all take snapshots at the same steps
                last = sum_of_processes(last or 0, self._taker.probe.device)  # the first alone has a store
            self._step = self._start = options.start if options.start is not None else last or 0
            self._begin()
        except BaseException:
            if self._store is not None:
                self._store.close()
            raise

    def __repr__(self) -> str:
        missing = sum(bool(snapshot.reason) for snapshot in self._snapshots)
        number = len(self._snapshots)
        taken = f"{number} snapshot{'' if number == 1 else 's'}{f', {missing} missing' if missing else ''}"
        store = f", stored in {self._store.path}" if self._store is not None else ""
        before = "" if self.continues_from is None else f", continued from step {self.continues_from:,}"
        return (
            f"<watch of {type(self._model).__name__} at step {self._step:,}: {taken} every {self.every:,} steps, "
            f"attention layers: {len(self._taker.layers)}{store}{before}>"
        )

    def step(self, step: int | None = None, *, loss: Tensor | float | None = None) -> None:
        """Count a step, and take a snapshot if a multiple of `every` is reached or passed.

        Call it once for each update of the weights, after `optimizer.step()`, however many batches an update has.
        `step` is its number where the count is not enough; one below the last is not counted, with a warning.  The
        `loss` is recorded with a snapshot.
        """
        if self._notice is not None:
            self._raise_or_warn_notice()
        if loss is not None:
            self._loss = _one_number(loss)
        before = self._step
        self._step = step = before + 1 if step is None else self._checked(step)
        if step // self.every != before // self.every:
            self.snapshot()

    def snapshot(self) -> None:
        """Take a snapshot now."""
        if self._notice is not None:
            self._raise_or_warn_notice()
        if self._is_idle:
            return
        self._add(self._read(self._take))

    def attention(
        self,
        *modules: nn.Module,
        queries_and_keys: Callable[..., tuple[object, ...]] | None = None,
        scale: float | None = None,
        is_causal: bool = False,
    ) -> None:
        """Announce modules whose attention is written by hand.

        What such a module passes to softmax are its logits.  Where it has no softmax over keys, `queries_and_keys` is a
        function of the module and its arguments that returns queries (B, H, T, d) and keys (B, H or fewer, S, d), and
        if need be what is added to the logits or a boolean mask, True where a key is seen; the logits are the products
        times `scale`, 1/sqrt(d) by default.  What your function returns cannot be checked against the module.
        """
        if isinstance(self._notice, InputError) and not isinstance(self._notice, NoAttention):
            raise copy(self._notice)
        if self._step != self._start:
            raise InputError(f"the watch is at step {self._step:,}: announce attention before the first step.")
        for module in modules:
            if not any(module is own for own in self._model.modules()):
                raise InputError(f"{type_name(module)} is not a module of this model: announce those that it has.")
        before = list(self._taker.announced)
        self._taker.announced += [AnnouncedModule(module, queries_and_keys, scale, is_causal) for module in modules]
        if self.continues_from is None:  # what was captured without these modules is captured again with them
            self._snapshots.clear()
            if self._store is not None:
                self._store.clear()
        try:
            self._begin()
        except Exception:
            self._taker.announced = before  # so that it can be announced again with another function
            raise

    @property
    def seen(self) -> tuple[str, ...]:
        """The names of the modules whose attention is captured, in the order of a forward pass."""
        if isinstance(self._notice, NoAttention):
            raise copy(self._notice)
        return tuple(self._taker.layers)

    @property
    def coverage(self) -> str:
        """A sentence on which attention is captured, with the modules whose attention is not."""
        return IDLE_MESSAGE if self._is_idle else self._taker.coverage()

    @property
    def dataset(self) -> xr.Dataset:
        """All snapshots so far; with a store, those that it holds."""
        if self._store is not None and self._store.last_step is not None:
            return read_snapshots(self._store.path)
        return self._labeled(self._snapshots)

    @property
    def verdicts(self) -> list[HeadVerdict]:
        """The verdicts on the heads from the snapshots so far, most pressing first."""
        if isinstance(self._notice, NoAttention):
            raise copy(self._notice)
        if self._is_idle:
            _warn(IDLE_MESSAGE)
        return judge_heads(self._numbers)

    def close(self) -> None:
        """End the watch, and let others write to its store."""
        self._notice = InputError(CLOSED_MESSAGE)
        if self._store is not None:
            try:
                self._store.close()
            except StoreError as error:
                self._raise_or_warn(error, "the store is not closed")

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raise_or_warn_notice(self) -> None:
        """Raise the pending error, or issue the pending warning once."""
        if isinstance(self._notice, InputError):
            raise copy(self._notice)
        sentence, self._notice = self._notice, None
        _warn(str(sentence))

    def _checked(self, step: int) -> int:
        """The number of a step; the last one if this one is before it."""
        try:
            step = operator.index(step)
        except TypeError:
            raise InputError(f"step is {short_repr(step)}: give the number of the step.") from None
        if step >= 2**63:  # datasets have 64 bits for it
            raise InputError(f"step is {short_repr(step)}: give a whole number below 2^63.")
        if step >= self._step:
            return step
        sentence = (
            f"step {step:,} comes after step {self._step:,}: no snapshots are taken until step {self._step:,} is "
            "passed; give steps that only grow, and start= if you resume from an earlier checkpoint."
        )
        if self._raises:
            raise InputError(sentence)
        self._warn_once("back", sentence)
        return self._step

    def _warn_once(self, subject: str, sentence: str) -> None:
        if subject not in self._warned:
            self._warned.add(subject)
            _warn(sentence)

    def __deepcopy__(self, memo: object) -> Watch:
        """Itself: a copy of a module that holds its watch, such as one for averaged weights, is not watched."""
        return self

    def __reduce__(self) -> str:
        raise InputError("a watch cannot be pickled: keep it outside of the model, and its snapshots in a store.")

    @torch.inference_mode(False)
    def _begin(self) -> None:
        """Take the first snapshot; if nothing is captured, this warns, and the first step is refused."""
        if self._is_idle:
            return
        self._notice = None
        self.__dict__.pop("_template", None)
        try:
            self._taker.find_layers()
        except NoAttention as refusal:
            self._notice = copy(refusal)  # without the frames that it came through, and their tensors
            _warn(str(refusal))
            return
        except ScanSnapError:
            raise
        except Exception as error:
            raise self._unfit(error) from error
        _ = self._template  # refuses token names that do not fit, before the first snapshot
        if self._taker.not_captured:
            self._notice = (
                f"{self._taker.coverage()}; announce such modules with watch.attention(module), and give "
                "queries_and_keys= where they compute no softmax over keys."
            )
        elif self._taker.is_nondeterministic:
            self._notice = f"{self._taker.coverage()}."
        snapshot = self._first_snapshot()  # what moves until the next one is measured from here
        if self._store is not None and self._store.last_step is not None:
            self._store.check(self._labeled([snapshot]))
            stored, last = read_snapshots(self._store.path), self._store.last_step
            if snapshot.step < last:
                _warn(
                    f"{self._store.path} already has snapshots up to step {last:,}; those after step "
                    f"{snapshot.step:,} are kept, and recording goes on at step "
                    f"{(last // self.every + 1) * self.every:,}: give another store for another run."
                )
            elif is_other_model(stored, snapshot):
                _warn(
                    f"{self._store.path} already holds steps {int(stored['step'][0]):,} to {last:,}, and this model is "
                    f"not the one of step {last:,}: to begin anew, delete the store or give another; to continue it, "
                    f"load its checkpoint, and give start= with its step if that is not {last:,}."
                )
            if snapshot.step <= last:
                return
        self._add(snapshot)

    def _unfit(self, error: Exception) -> InputError:
        """The refusal of a probe on which the model fails before the first step."""
        name = type(self._model).__name__
        if any(parameter.is_meta for parameter in self._model.parameters()):
            return InputError(f"{name} is on the meta device, without values: load its weights first.")
        return InputError(
            f"{name} cannot be run on the probe ({brief(error)}): give what it is called with in training: a tensor, a "
            "tuple of arguments, a mapping of keyword arguments, or a function of it."
        )

    def _first_snapshot(self) -> SnapshotRecord:
        """The snapshot; without windows of repeated tokens if the model takes only as many windows as the probe has."""

        def take() -> SnapshotRecord:
            try:
                return self._taker.take()
            except Exception as error:
                alone = self._make_taker(self._taker.probe.without_repeated(), self._taker.record)
                try:
                    measured = alone.take()
                except Exception:
                    raise error from None
                self._taker = alone
                _warn(f"windows of repeated tokens are left out, since they fail ({brief(error)}).")
                return measured

        return self._read(take, is_first=True)

    def _make_taker(self, probe: Probe, record: Sequence[HeadQuantity]) -> SnapshotTaker:
        """What takes snapshots of the model on a probe."""
        announced = self._taker.announced if hasattr(self, "_taker") else ()
        return SnapshotTaker(
            self._model,
            probe,
            record,
            announced=announced,
            with_pattern=self._options.pattern,
            all_ranks=self._options.ranks == "all",
        )

    def _take(self) -> SnapshotRecord:
        """A snapshot, on the device that the model is on now."""
        device = _device(self._model)
        if device != self._taker.probe.device:
            self._taker = self._make_taker(self._taker.probe.to(device), self._taker.record)
        with torch.inference_mode(False):
            return self._taker.take()

    def _read(self, take: Callable[[], SnapshotRecord], *, is_first: bool = False) -> SnapshotRecord:
        """What `take` measures at this step, or a missing snapshot if it fails."""
        try:
            measured = take().check() if self._raises else take()
        except Exception as error:
            if is_first and isinstance(error, ScanSnapError):
                raise
            if is_first and not lacks_memory(error):
                raise self._unfit(error) from error
            if self._raises:
                raise
            return SnapshotRecord({}, reason=brief(error), step=self._step)
        for name, failure in measured.failures.items():
            if is_first:
                raise failure
            self._warn_once(name, f"at step {self._step:,} {failure} It is NaN from here on where it fails.")
        groups = [] if self._options.optimizer is None else self._options.optimizer.param_groups
        rate = max((float(group["lr"]) for group in groups), default=math.nan)
        return replace(measured, step=self._step, scalars={LOSS: float(self._loss), LEARNING_RATE: rate})

    def _add(self, snapshot: SnapshotRecord) -> None:
        """Keep a snapshot, write it to the store and call the sinks; failures there do not end the training."""
        if snapshot.reason:
            what = "missing" if snapshot.status == "missing" else "not whole"
            self._warn_once(
                "missing",
                f"the snapshot at step {snapshot.step:,} is {what} ({snapshot.reason}); the training goes on, and "
                "later such snapshots are recorded without a warning.",
            )
        if self._snapshots and self._snapshots[-1].step == snapshot.step and self._store is None:
            self._snapshots.pop()
        if self.continues_from is not None and snapshot.step <= self.continues_from:
            return  # the store has it, from before the training was resumed at an earlier step
        if self._store is not None:
            try:
                self._store.append(self._labeled([snapshot]))
            except Exception as error:
                self._raise_or_warn(error, f"the snapshot at step {snapshot.step:,} is lost")
                return
            snapshot = replace(snapshot, pattern=None)  # it is in the store
        self._snapshots.append(snapshot)
        metrics: dict[str, float] = {}
        for sink in self._sinks:
            try:
                metrics = metrics or head_metrics(self._numbers)
                sink(snapshot.step, metrics)
            except Exception as error:
                self._raise_or_warn(error, f"a sink failed at step {snapshot.step:,}")
        if self._on_alarm is not None:
            self._report_alarms(self._on_alarm)

    def _report_alarms(self, on_alarm: Callable[[list[HeadVerdict]], object]) -> None:
        """Call the user with the alarms that are new; one that has ended is new when it comes again.

        A head may have collapsed earlier than its alarm is new, if another verdict named the key that it attends to.
        """
        numbers = self._numbers
        alarms = {(v.name, v.layer, v.head): v for v in judge_heads(numbers) if v.severity == "alarm"}
        new = [verdict for key, verdict in alarms.items() if key not in self._alarms]
        self._alarms = set(alarms)
        if any(verdict.since < self._snapshots[-1].step for verdict in new):
            before = judge_heads(numbers.isel(step=slice(-1)))
            named = {(v.layer, v.head): v.name for v in before if HEAD_VERDICTS.member(v.name).names_key}
            held = {(v.name, v.layer, v.head) for v in before}
            for i, verdict in enumerate(new):
                head = verdict.layer, verdict.head
                if head in named and (verdict.name, *head) not in held and verdict.since < self._snapshots[-1].step:
                    new[i] = replace(verdict, evidence=f"{verdict.evidence}; until now it was {named[head]}")
        if new:
            on_alarm(new)

    def _raise_or_warn(self, error: Exception, what: str) -> None:
        """Raise an error, or warn of it: with `what` it means, unless it is a sentence already."""
        if self._raises:
            raise error
        _warn(str(error) if isinstance(error, ScanSnapError) else f"{what}: {brief(error)}")

    def _labeled(self, snapshots: Sequence[SnapshotRecord]) -> xr.Dataset:
        """The dataset of some snapshots."""
        return make_dataset(self._template, self._taker.record, snapshots, patterns=self._options.pattern)

    @property
    def _numbers(self) -> xr.Dataset:
        """All snapshots so far, without their patterns."""
        return make_dataset(self._template, self._taker.record, self._snapshots, patterns=False)

    @cached_property
    def _template(self) -> xr.Dataset:
        """The coordinates and attributes of the dataset, without steps."""
        taker = self._taker
        rows, keys = pattern_shape(taker.layers)
        ids = taker.probe.token_ids()
        tokens = [] if ids is None else [self._token_name(int(token)) for token in ids[0, :rows].tolist()]
        recorded = [*(quantity.name for quantity in taker.record), "pattern"]
        settings: dict[str, Any] = {
            "every": self.every,
            "rows": taker.probe.rows or 0,
            "coverage": taker.coverage(),
            "probe_checksum": taker.probe.checksum,
        }
        described = {"model": type(self._model).__name__, "probe": str(taker.probe), **settings}
        return xr.Dataset(
            coords={
                "layer": np.arange(len(taker.layers)),
                "module": ("layer", np.array(list(taker.layers), np.str_)),
                "attention_kind": ("layer", np.array([layer.kind for layer in taker.layers.values()], "U6")),
                "head": np.arange(most_heads(taker.layers)),
                "row": np.arange(rows),
                "key": np.arange(keys),
                "token": ("row", np.array([*tokens, *[""] * rows][:rows], np.str_)),
            },
            attrs=attributes(
                WATCH_KIND, "attention of a model in training", {"record": recorded, **settings}, **described
            ),
        )

    def _token_name(self, token: int) -> str:
        if self._options.tokens is None:
            return str(token)
        try:
            return str(self._options.tokens(token) if callable(self._options.tokens) else self._options.tokens[token])
        except Exception as error:
            raise InputError(
                f"tokens has no word for the token {token} ({brief(error)}): give a function of token ids, or a list "
                "of the words of all of them."
            ) from None


def _warn(sentence: str) -> None:
    """Warn where the user's own code called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARY_PATHS):
        frame, level = frame.f_back, level + 1
    warnings.warn(sentence, stacklevel=level)


def _one_number(loss: Tensor | float) -> Tensor | float:
    """A loss without its graph; a tensor is not read, because a GPU may still compute it."""
    if isinstance(loss, Tensor) and loss.numel() != 1:
        raise InputError(f"loss has {loss.numel()} numbers: give its mean.")
    try:
        return loss.detach() if isinstance(loss, Tensor) else float(loss)
    except (TypeError, ValueError):
        raise InputError(f"loss is {short_repr(loss)}: give a number, or a tensor that has one.") from None


def _device(model: nn.Module) -> torch.device:
    """Where the first parameter is that has values."""
    return next((parameter.device for parameter in model.parameters() if not parameter.is_meta), torch.device("cpu"))
