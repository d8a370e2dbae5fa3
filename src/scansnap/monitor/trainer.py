"""A watch for Hugging Face's `Trainer`:

trainer.add_callback(ss.TrainerWatch(probe=batch, store="attention.zarr"))
"""

from __future__ import annotations

from typing import Any

from scansnap.base.errors import InputError
from scansnap.monitor.watch import Watch, watch

try:
    from transformers import TrainerCallback
except ImportError:
    raise InputError(
        "TrainerWatch needs transformers, which is not installed here: pip install transformers."
    ) from None


class TrainerWatch(TrainerCallback):
    """Looks at the model that a `Trainer` trains, with its steps.

    It takes what `ss.watch` takes but the model; tokens are called what the trainer's tokenizer calls them.  The watch
    is its attribute `watch` from the begin of the training on.
    """

    def __init__(self, *, probe: Any, **options: Any) -> None:
        self._options = {"probe": probe, **options}
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        decode = getattr(kwargs.get("processing_class"), "decode", None)
        words = decode and (lambda token: decode([token]))
        self.watch = watch(kwargs["model"], **{"tokens": words, "start": state.global_step, **self._options})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.watch is not None
        self.watch.step(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self.watch is not None
        self.watch.close()
