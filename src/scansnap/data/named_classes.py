"""Sequence classes by name, or from a small TOML or JSON file that can be written by hand.

    vocab_size = 7
    token_names = ["the", "cat", "dog", "sat", "ran", "mat", "bone"]    # optional

    [[class]]
    query = "sat"                   # an id, or a name where names are given
    next_token = "mat"
    tokens = ["the", "cat"]
    probs = [0.5, 0.5]
    weight = 0.5                    # optional, for all classes or for none

Where tokens depend on their position, `positions = [1, 2, 5]` at the top gives the number of positions in each bucket,
nearest the query first, and `probs` of a class is a list of lists, one for each bucket.

JSON has the same keys, with a list under "class".
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from scansnap.data.positioned_classes import PositionedClasses, near_distinct
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource
from scansnap.data.synthetic import local_common, single_common, syn_medium, syn_small
from scansnap.runtime.errors import InputError, brief, short_repr, unknown
from scansnap.storage.files import read_regular_text, write_new_text
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.user_code import Registry
from scansnap.validation.validate import validated

NAMED_CLASSES: Registry[DataSource] = Registry("class setting", "draw")
"""Data by name: `train(name, ...)` and `--classes`.

>>> "syn-small" in ss.NAMED_CLASSES, "single-common" in ss.NAMED_CLASSES
(True, True)
"""

NAMED_CLASSES.register("syn-small")(syn_small)
for queries in (1, 3, 5, 10):
    NAMED_CLASSES.register(f"syn-medium-{queries}")(partial(syn_medium, num_query=queries))
NAMED_CLASSES.register("single-common")(single_common)
NAMED_CLASSES.register("local-common")(local_common)
NAMED_CLASSES.register("near-distinct")(near_distinct)


@validated
def named_classes(name: str, folder: Path | None = None) -> DataSource:
    """The data with this name, or from the .toml or .json file at this path (relative to `folder`).

    >>> ss.named_classes("syn-small") == ss.syn_small()
    True
    """
    if Path(name).suffix in SUFFIXES:
        return read_classes((folder or Path()) / name)
    if name not in NAMED_CLASSES:
        raise unknown("class setting", name, [*NAMED_CLASSES, "a .toml or .json file"])
    return NAMED_CLASSES.member(name)


@dataclass(frozen=True)
class DataType(ArgumentType):
    """Data: an object, or the name or the file of one."""

    def check(self, name: str, value: Any) -> DataSource:
        return as_source(value)


Data = Annotated[DataSource | str, DataType()]
"""What functions take under the name `classes`."""


def as_source(classes: object) -> DataSource:
    """The data that an argument `classes` means: the object itself, or the data with that name or in that file."""
    if isinstance(classes, DataSource):
        if not isinstance(classes.classes, SequenceClasses):
            raise InputError(
                f"{type(classes).__name__}.classes is {type(classes.classes).__name__}: give SequenceClasses."
            )
        return classes
    if isinstance(classes, str | Path):
        return named_classes(str(classes))
    what = f"the class {classes.__name__}" if isinstance(classes, type) else type(classes).__name__
    raise InputError(
        f"classes is {what} and not SequenceClasses or a DataSource: make them with SequenceClasses(...), syn_small() "
        "or read_classes(path), or give a name."
    )


# --- files ------------------------------------------------------------------------------------------------------------


FILE_KEYS = ("vocab_size", "token_names", "positions", "class")
CLASS_KEYS = ("query", "next_token", "tokens", "probs", "weight")
SUFFIXES = (".toml", ".json")


@validated
def read_classes(path: str | Path) -> SequenceClasses:
    """The classes written in a .toml or .json file.

    >>> path = ss.write_classes(ss.syn_small(), "read.toml")
    >>> ss.read_classes(path) == ss.syn_small()
    True
    """
    path = Path(path)
    _check_suffix(path)
    try:
        text = read_regular_text(path)
    except OSError as error:
        raise InputError(f"cannot read the classes file {path}: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file: give a .toml or .json file of sequence classes.") from None
    try:
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid {path.suffix[1:].upper()}: {brief(error)}.") from None
    try:
        return classes_from_mapping(content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


@validated
def write_classes(classes: SequenceClasses, path: str | Path) -> Path:
    """Write the classes to a new .toml or .json file, from which `read_classes` gives them back unchanged.

    >>> ss.write_classes(ss.syn_small(), "written.json").name
    'written.json'
    """
    path = Path(path)
    _check_suffix(path)
    content = classes_to_mapping(classes)
    if path.suffix == ".json":
        text = json.dumps(content, indent=1) + "\n"
    else:
        import tomli_w

        text = tomli_w.dumps(content)
    write_new_text(path, text)
    return path


def classes_to_mapping(classes: SequenceClasses) -> dict[str, Any]:
    """The file's content as plain lists and numbers."""
    named = classes.token_names is not None and len(set(classes.token_names)) == classes.vocab_size

    def label(token: int) -> int | str:
        return classes.name(token) if named else int(token)

    content: dict[str, Any] = {"vocab_size": classes.vocab_size}
    if classes.token_names is not None:
        content["token_names"] = list(classes.token_names)
    if classes.num_buckets:
        content["positions"] = classes.sizes.tolist()
    content["class"] = [
        {
            "query": label(classes.query[i]),
            "next_token": label(classes.next_token[i]),
            "weight": float(classes.weights[i]),
            "tokens": [label(token) for token in classes.support(i)],
            "probs": classes.listed_probs(i),
        }
        for i in range(classes.num_classes)
    ]
    return content


def classes_from_mapping(content: object) -> SequenceClasses:
    """The classes that `classes_to_mapping` describes."""
    if not isinstance(content, Mapping):
        raise InputError("the classes file must hold the keys vocab_size and class at its top level.")
    _check_keys(content, FILE_KEYS, required=("vocab_size", "class"), where="the classes file")
    names, entries, sizes = content.get("token_names"), content["class"], content.get("positions")
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise InputError(f"token_names is {short_repr(names)}: give a list of names, one per token.")
    _check_entries(entries)
    if sizes is not None:
        _check_buckets(sizes, entries)
    ids = {name: i for i, name in enumerate(names or ())}
    token = partial(_token_id, ids=ids if len(ids) == len(names or ()) else {})  # repeated names stand for no token
    options: dict[str, Any] = {
        "tokens": [[token(value) for value in entry["tokens"]] for entry in entries],
        "query": [token(entry["query"]) for entry in entries],
        "next_token": [token(entry["next_token"]) for entry in entries],
        "vocab_size": content["vocab_size"],
        "weights": [entry["weight"] for entry in entries] if "weight" in entries[0] else None,
        "token_names": names,
    }
    if sizes is None:
        return SequenceClasses.from_supports(probs=[entry["probs"] for entry in entries], **options)
    parts = [
        SequenceClasses.from_supports(probs=[entry["probs"][g] for entry in entries], **options)
        for g in range(len(sizes))
    ]
    return PositionedClasses.from_parts(sizes=sizes, parts=parts)


def _token_id(value: object, ids: Mapping[str, int]) -> int:
    """The token that a file means by an id or a name."""
    if isinstance(value, str):
        if value in ids:
            return ids[value]
        if ids:
            raise unknown("token name", value, ids)
        raise InputError(f"token '{value}' is a name, but the file has no token_names (or they repeat): give ids.")
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"a token is {short_repr(value)}: give an id (a whole number) or a name.")
    return value


def _check_entries(entries: object) -> None:
    """Refuse a list of classes without the keys of a class, or with weights for some classes only."""
    if not isinstance(entries, list) or not entries:
        raise InputError("class must be a list with one entry per sequence class.")
    for i, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise InputError(f"class {i} must hold the keys query, next_token, tokens and probs.")
        _check_keys(entry, CLASS_KEYS, required=CLASS_KEYS[:4], where=f"class {i}")
        for key in ("tokens", "probs"):
            if not isinstance(entry[key], list):
                raise InputError(f"{key} of class {i} must be a list.")
    weighted = ["weight" in entry for entry in entries]
    if any(weighted) and not all(weighted):
        raise InputError(f"class {weighted.index(False)} has no weight but others do: give all classes one, or none.")


def _check_buckets(sizes: object, entries: Sequence[Mapping[str, Any]]) -> None:
    """Refuse classes whose `probs` are not one list for each bucket of positions."""
    if not isinstance(sizes, list):
        raise InputError(f"positions is {short_repr(sizes)}: give the number of positions in each bucket.")
    for i, entry in enumerate(entries):
        if len(entry["probs"]) != len(sizes) or not all(isinstance(row, list) for row in entry["probs"]):
            raise InputError(f"probs of class {i} must hold {len(sizes)} lists, one for each entry of positions.")


def _check_keys(content: Mapping[str, Any], allowed: Sequence[str], *, required: Sequence[str], where: str) -> None:
    for key in content:
        if key not in allowed:
            raise unknown(f"key in {where}", key, allowed)
    for key in required:
        if key not in content:
            raise InputError(f"{where} has no '{key}': it needs {', '.join(required)}.")


def _check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"'{path}' ends in '{path.suffix}': a classes file ends in .toml or .json.")
