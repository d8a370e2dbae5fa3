"""A trained text model on disk: a checked folder with its parameters (safetensors) and its tokenizer.

The manifest describes the model's shape.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from scansnap.runtime.errors import StoreError, brief
from scansnap.storage.folder import CheckedFolder, write_folder
from scansnap.text.options import TextShape, YZShape
from scansnap.text.tokenizers import Tokenizer, load_tokenizer
from scansnap.text.transformer import TextTransformer
from scansnap.text.yz import YZText

TextModel = TextTransformer | YZText

PARAMETERS = "model.safetensors"


def model_folder(store: str | Path) -> Path:
    """The folder of a result's model, next to the result."""
    store = Path(store)
    return store.with_name(f"{store.name}.model")


def save_model(model: TextModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model."""
    from safetensors.torch import save_file

    def write(folder: Path) -> dict[str, Any]:
        parameters = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(parameters, folder / PARAMETERS)
        tokenizer.save(folder)
        kind = "yz" if isinstance(model, YZText) else "transformer"
        return {"model": kind, **asdict(model.shape), "tokenizer": tokenizer.fingerprint}

    try:
        write_folder(folder, write)
    except OSError as error:
        raise StoreError(
            f"cannot write the model to {folder} ({error.strerror or error}): free some space, or give another place."
        ) from None


def load_model(folder: Path, tokenizer: Tokenizer | None = None) -> tuple[TextModel, Tokenizer]:
    """The model and its tokenizer, which must be the same as `tokenizer` if that is given."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    checked = CheckedFolder(folder)
    if not (folder / PARAMETERS).exists() or "tokenizer" not in checked.info:
        raise StoreError(
            f"{folder} contains no trained text model: finish the run; above 1 GiB, with --save-model always."
        )
    try:
        checked.refuse_damage("train it again")
        description = dict(checked.info)
        expected = description.pop("tokenizer")
        model = _empty_model(description.pop("model"), description)
        model.load_state_dict(load_file(folder / PARAMETERS), assign=True)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise StoreError(f"the model in {folder} is damaged ({brief(error)}): train it again.") from None
    saved_tokenizer = load_tokenizer(folder)
    if tokenizer is not None and tokenizer.fingerprint != expected:
        raise StoreError(
            f"the tokenizer given has {tokenizer.vocab_size:,} tokens and is not the one that the model in {folder} "
            f"was trained with ({description['vocab_size']:,} tokens): read the text with the model's own."
        )
    return model.eval(), saved_tokenizer


def _empty_model(kind: str, shape: dict[str, Any]) -> TextModel:
    """A model of this shape, to be filled; Y and Z, which are large, are not allocated before."""
    if kind != "yz":
        return TextTransformer(TextShape(**shape))
    with torch.device("meta"):
        return YZText(YZShape(**shape))
