"""A watch for Lightning:

Trainer(callbacks=[ss.LightningWatch(probe=batch, store="attention.zarr")])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from scansnap.monitor.options import WatchOptions, takes_watch_options
from scansnap.monitor.watch import Watch
from scansnap.runtime.errors import InputError
from scansnap.validation.options import from_names

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise InputError("LightningWatch needs lightning, which is not installed here: pip install lightning.") from None


class LightningWatch(Callback):
    """Watches the module that Lightning trains, with its steps: the updates of its optimizers.

    It takes the arguments of `ss.watch` except the model.  The module's `forward` is called with the probe.  Its
    attribute `watch` is the watch, from the beginning of training.

    >>> import torch
    >>> callback = ss.LightningWatch(probe=torch.zeros(2, 8, dtype=int), every=100)  # Trainer(callbacks=[callback])
    """

    @takes_watch_options(WatchOptions)
    def __init__(self, **options: Any) -> None:
        self._options = from_names(WatchOptions, options)
        self.watch: Watch | None = None
        self._step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step = trainer.global_step
        optimizer = next(iter(trainer.optimizers), None)
        self.watch = Watch(pl_module, self._options.with_defaults(start=self._step, optimizer=optimizer))

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Tensor | Mapping[str, Tensor] | None,
        *_: object,
        **__: object,
    ) -> None:
        assert self.watch is not None
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if trainer.global_step != self._step:  # batches that are accumulated are no step
            self._step = trainer.global_step
            if loss is not None:
                loss = loss * trainer.accumulate_grad_batches  # by which Lightning has divided it
            self.watch.step(self._step, loss=loss)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.watch is not None
        self.watch.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self.watch is not None:
            self.watch.close()
