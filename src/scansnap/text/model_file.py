"""A trained text model on disk: a folder with its parameters (safetensors), its shape (JSON) and its tokenizer.

The file of the shape lists the checksums of the others and is written last, when they are on the disk: a folder with a
shape is complete.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from scansnap.corpus.tokenizers import Tokenizer, load_tokenizer
from scansnap.results.store import Condition
from scansnap.runtime.errors import StoreError, brief
from scansnap.storage.files import (
    SEAL,
    DamagedFile,
    file_checksum,
    is_list_of_sums,
    list_files,
    replace_file,
    sealed,
    sync,
    sync_tree,
    unsealed,
)
from scansnap.text.options import TextShape, YZShape
from scansnap.text.transformer import TextTransformer
from scansnap.text.yz import YZText

TextModel = TextTransformer | YZText

SHAPE = "shape.json"
PARAMETERS = "model.safetensors"


def model_folder(store: str | Path) -> Path:
    """The folder of a result's model, next to the result."""
    store = Path(store)
    return store.with_name(f"{store.name}.model")


def save_model(model: TextModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Write the model."""
    from safetensors.torch import save_file

    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SHAPE).unlink(missing_ok=True)
        parameters = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        save_file(parameters, folder / PARAMETERS)
        tokenizer.save(folder)
        sync_tree(folder)
        kind = "yz" if isinstance(model, YZText) else "transformer"
        description = {"model": kind, **asdict(model.shape), "tokenizer": tokenizer.fingerprint}
        files = list_files(folder, leave_out={f"{SHAPE}.new"})  # which a writer that ended has left
        replace_file(folder / SHAPE, sealed({**description, "files": files}))
        sync([folder.parent])
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
        description = _description(folder)
        expected = description.pop("tokenizer")
        model = _empty_model(description.pop("model", "transformer"), description)
        model.load_state_dict(load_file(folder / PARAMETERS), assign=True)
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError, DamagedFile) as error:
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


def _description(folder: Path) -> dict[str, Any]:
    """The shape and the tokenizer's fingerprint, if no file was damaged; models of before list no files."""
    data = (folder / SHAPE).read_bytes()
    if SEAL not in data:
        return dict(json.loads(data))
    description = unsealed(data)
    files = description.pop("files")
    if not is_list_of_sums(files):
        raise DamagedFile(f"{SHAPE} is none that scansnap wrote")
    for name, value in files.items():
        if file_checksum(folder / name) != value:
            raise DamagedFile(f"{name} has other bytes than were written")
    return description


def check_model(folder: Path) -> Condition:
    """Read every file of a model, and say which are intact."""
    data = (folder / SHAPE).read_bytes()
    try:
        files = unsealed(data)["files"]
        if not is_list_of_sums(files):
            raise DamagedFile
    except DamagedFile:
        was_sealed = b'"files"' in data
        return Condition(was_sealed, True, {SHAPE: [SHAPE]} if was_sealed else {})
    present = list_files(folder)
    return Condition(True, True, {name: [] if present.get(name) == value else [name] for name, value in files.items()})
