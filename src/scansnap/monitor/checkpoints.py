"""Snapshots of a model that has been trained already: one for each Hugging Face checkpoint of a series.

No code of a checkpoint is executed: its weights are safetensors, which hold numbers only, and its model is a class of
transformers.  Pickled weights are opened only if the user allows it.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import xarray as xr

from scansnap.monitor.store import read_snapshots
from scansnap.monitor.watch import watch
from scansnap.runtime.errors import InputError, brief
from scansnap.storage.folder import is_new

if TYPE_CHECKING:
    from torch import Tensor

PICKLE_PATTERNS = ("pytorch_model*.bin", "*.pt", "*.pth")


def watch_checkpoints(
    folder: str | Path,
    text: str,
    *,
    store: str | Path | None = None,
    windows: int = 8,
    length: int = 128,
    allow_pickles: bool = False,
    device: str = "cpu",
    on_checkpoint: Callable[[int, int, int], None] = lambda number, count, step: None,
    on_note: Callable[[str], None] = lambda sentence: None,
) -> xr.Dataset:
    """Take a snapshot of each checkpoint in the folder, in the order of their steps.

    Parameters
    ----------
    folder : path
        Where the checkpoints are, each a folder named for its step: checkpoint-500, step1000; or one of them.
    text : str
        What the model reads at each snapshot; cut into at most `windows` windows of at most `length` tokens.
    store : path, optional
        Where the snapshots are written; those that are there are not made again.
    allow_pickles : bool
        Open pickled weights too; opening a pickle can run any code in it.
    on_checkpoint, on_note : functions
        Called with the number of the checkpoint, their count and its step; and with a sentence to print.
    """
    series = find_checkpoints(folder)
    steps = list(series)
    if store is not None and not is_new(Path(store)):
        done = max(read_snapshots(store)["step"].values.tolist(), default=-1)
        steps = [step for step in steps if step > done] or steps[-1:]
    with _quiet():
        model = _load(series[steps[0]], allow_pickles).to(device)
        ids, word, note = _encoded(text, series[steps[-1]], Path(folder), model, windows, length)
        if note:
            on_note(note)
        probe = {"input_ids": ids}
        if model.config.is_encoder_decoder:
            probe["decoder_input_ids"] = ids
        with watch(model, probe=probe, every=1, store=store, tokens=word, start=steps[0], errors="raise") as watching:
            for number, step in enumerate(steps):
                if number:
                    _replace_weights(model, series[step], allow_pickles)
                    watching.step(step)
                on_checkpoint(number + 1, len(steps), step)
            return watching.dataset


def find_checkpoints(folder: str | Path) -> dict[int, Path]:
    """The checkpoints in a folder by their steps, or the folder itself if it is one."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the one that holds the checkpoints.")
    series: dict[int, Path] = {}
    for path in sorted(path.parent for path in folder.glob("*/config.json")):
        numbers = re.findall(r"\d+", path.name)
        if numbers and (step := int(numbers[-1])) in series:
            raise InputError(f"{series[step].name} and {path.name} are both of step {step}: leave one of them there.")
        if numbers:
            series[int(numbers[-1])] = path
    if not series and (folder / "config.json").is_file():
        series[step_of(folder) or 0] = folder.resolve()
    if not series:
        raise InputError(
            f"{folder} holds no checkpoints: give a folder whose folders are named for their steps, as checkpoint-500, "
            "and hold a config.json and safetensors."
        )
    return dict(sorted(series.items()))


def step_of(checkpoint: Path) -> int | None:
    """The step that a checkpoint is named for, as checkpoint-500 is; None for another name, as gpt2."""
    named = re.fullmatch(r"(?:checkpoint|ckpt|step|iter|global_step)[-_]?(\d+)", checkpoint.resolve().name)
    return int(named[1]) if named else None


def _load(path: Path, allow_pickles: bool) -> Any:
    """The model of a checkpoint."""
    transformers = _transformers()
    if not allow_pickles and not list(path.glob("*.safetensors")):
        if any(list(path.glob(pattern)) for pattern in PICKLE_PATTERNS):
            raise InputError(
                f"{path} has no safetensors: its weights are a pickle, which can run any code of whoever made it when "
                "it is opened; allow that (--allow-pickles) if you trust where it comes from."
            )
        raise InputError(f"{path} has no weights: give checkpoints with safetensors.")
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(path, **options)
        kind: Any = getattr(transformers, (config.architectures or [""])[0], None)
        if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
            kind = transformers.AutoModel
        return kind.from_pretrained(
            path, config=config, use_safetensors=None if allow_pickles else True, dtype="auto", **options
        )
    except Exception as error:
        raise InputError(
            f"{path} cannot be loaded as a model of transformers, whose own code is all that is run ({brief(error)})."
        ) from None


def _replace_weights(model: Any, path: Path, allow_pickles: bool) -> None:
    """Give the model the weights of another checkpoint."""
    other = _load(path, allow_pickles)
    if other.config.to_dict() | {"_name_or_path": ""} != model.config.to_dict() | {"_name_or_path": ""}:
        raise InputError(f"{path} has another configuration than the checkpoints before it: give one model's series.")
    model.load_state_dict(other.state_dict())


def _encoded(
    text: str, path: Path, folder: Path, model: Any, windows: int, length: int
) -> tuple[Tensor, Callable[[int], str], str]:
    """Windows of token ids, what a token is called, and a note if there is no tokenizer."""
    tokenizer, why_not = _tokenizer(path, folder)
    note = ""
    vocab = int(model.config.get_text_config().vocab_size)
    if tokenizer is None:
        ids = [byte % vocab for byte in text.encode()]
        note = f"{why_not}: each byte of the text stands for the token of its number" + (
            f", modulo {vocab}." if vocab < 256 else "."
        )
    else:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    longest = getattr(model.config.get_text_config(), "max_position_embeddings", None) or length
    size = min(length, longest, len(ids))
    if size < 4:
        raise InputError(f"the probe has {len(ids)} tokens: give a text of at least 4.")
    count = min(windows, len(ids) // size)

    def word(token: int) -> str:
        return chr(token) if tokenizer is None else str(tokenizer.decode([token]))

    return torch.tensor(ids[: count * size]).reshape(count, size), word, note


def _tokenizer(*places: Path) -> tuple[Any, str]:
    """The tokenizer that lies at one of the places, or None and why there is none."""
    why_not = f"{places[-1]} has no tokenizer"
    for place in places:
        if any(place.glob("*tokenizer*")) or (place / "vocab.txt").exists():
            try:
                options = {"local_files_only": True, "trust_remote_code": False}
                return _transformers().AutoTokenizer.from_pretrained(place, **options), ""
            except Exception as error:  # the package raises many kinds
                why_not = f"the tokenizer in {place} cannot be loaded ({brief(error)})"
    return None, why_not


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise InputError(
            "checkpoints are read with transformers, which is not installed here: pip install transformers."
        ) from None
    return transformers


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the reports and progress bars of transformers."""
    logging = _transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
