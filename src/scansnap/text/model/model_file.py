"""A trained text model on disk: a folder with its parameters (safetensors), its shape (JSON) and its tokenizer."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from scansnap.base.errors import StoreError, brief
from scansnap.text.corpus.tokenizers import Tokenizer, load_tokenizer
from scansnap.text.model.shape import TextShape, YZShape
from scansnap.text.model.transformer import TextTransformer
from scansnap.text.model.yz import YZText

TextModel = TextTransformer | YZText

SHAPE = "shape.json"
PARAMETERS = "model.safetensors"


def model_folder(store: str | Path) -> Path:
    """The folder of a result's model, next to the result."""
    store = Path(store)
    return store.with_name(f"{store.name}.model")


def save_model(model: TextModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model; its shape is written last, so that a folder with a shape is complete."""
    from safetensors.torch import save_file

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SHAPE).unlink(missing_ok=True)
        parameters = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(parameters, folder / PARAMETERS)
        tokenizer.save(folder)
        kind = "yz" if isinstance(model, YZText) else "transformer"
        description = {"model": kind, **asdict(model.shape), "tokenizer": tokenizer.fingerprint}
        (folder / SHAPE).write_text(json.dumps(description, indent=1) + "\n")
    except OSError as error:
        raise StoreError(
            f"cannot write the model to {folder} ({error.strerror or error}): make room there, or choose another place."
        ) from None


def load_model(folder: Path, tokenizer: Tokenizer | None = None) -> tuple[TextModel, Tokenizer]:
    """The model and its tokenizer, which must be the same as `tokenizer` if that is given."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not (folder / SHAPE).is_file():
        raise StoreError(f"{folder} contains no trained text model: give the folder that a finished run wrote.")
    try:
        description = json.loads((folder / SHAPE).read_text())
        expected = description.pop("tokenizer")
        model = _empty_model(description.pop("model", "transformer"), description)
        model.load_state_dict(load_file(folder / PARAMETERS), assign=True)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise StoreError(f"the model in {folder} is damaged ({brief(error)}): train it again.") from None
    saved_tokenizer = load_tokenizer(folder)
    for candidate, where in ((saved_tokenizer, f"in {folder}"), (tokenizer, "given")):
        if candidate is not None and candidate.fingerprint != expected:
            raise StoreError(
                f"the tokenizer {where} has {candidate.vocab_size:,} tokens and is not the one that the model in "
                f"{folder} was trained with ({description['vocab_size']:,} tokens): read the text with the model's own."
            )
    return model.eval(), saved_tokenizer


def _empty_model(kind: str, shape: dict[str, Any]) -> TextModel:
    """A model of this shape, to be filled; Y and Z, which are large, are not allocated before."""
    if kind != "yz":
        return TextTransformer(TextShape(**shape))
    with torch.device("meta"):
        return YZText(YZShape(**shape))
