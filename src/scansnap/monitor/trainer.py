"""A watch for Hugging Face's `Trainer`:

trainer.add_callback(ss.TrainerWatch(probe=batch, store="attention.zarr"))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.optim import Optimizer

from scansnap.monitor.options import WatchOptions, takes_watch_options
from scansnap.monitor.watch import Watch
from scansnap.runtime.errors import InputError
from scansnap.validation.options import from_names

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError:
    raise InputError(
        "TrainerWatch needs transformers, which is not installed here: pip install transformers."
    ) from None


class TrainerWatch(TrainerCallback):
    """Watches the model that a `Trainer` trains, with its steps.

    It takes the arguments of `ss.watch` except the model; tokens have the names that the trainer's tokenizer gives
    them.  A snapshot has the loss that the trainer logged last, so let it log as often as snapshots are taken
    (`logging_steps`, 500 by default).  Its attribute `watch` is the watch, from the beginning of training.

    >>> import torch
    >>> callback = ss.TrainerWatch(probe=torch.zeros(2, 8, dtype=int), every=100)  # Trainer(..., callbacks=[callback])
    """

    @takes_watch_options(WatchOptions)
    def __init__(self, **options: Any) -> None:
        self._options = from_names(WatchOptions, options)
        self.watch: Watch | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if self.watch is not None:  # of a training that was interrupted
            self.watch.close()
        model, decode = kwargs["model"], getattr(kwargs.get("processing_class"), "decode", None)
        assert isinstance(model, nn.Module)
        optimizer = getattr(kwargs.get("optimizer"), "optimizer", kwargs.get("optimizer"))  # accelerate wraps it
        options = self._options.with_defaults(
            start=state.global_step,
            optimizer=optimizer if isinstance(optimizer, Optimizer) else None,
            tokens=None if decode is None else lambda token: decode([token]),
        )
        self.watch = Watch(model, options)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        assert self.watch is not None
        if not control.should_log:  # or else the loss is logged next
            self.watch.step(state.global_step)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        if self.watch is not None and logs is not None and "loss" in logs:
            self.watch.step(state.global_step, loss=logs["loss"])

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        assert self.watch is not None
        self.watch.close()
