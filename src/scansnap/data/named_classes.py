"""Named data, for use in files, commands and calls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from scansnap.data.classes_file import SUFFIXES, read_classes
from scansnap.data.positioned_classes import near_distinct
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.data.source import DataSource
from scansnap.data.synthetic import local_common, single_common, syn_medium, syn_small
from scansnap.runtime.errors import InputError, unknown
from scansnap.validation.argument_types import ArgumentType
from scansnap.validation.registry import Registry
from scansnap.validation.validate import validated

NAMED: Registry[DataSource] = Registry("class setting", "draw")
"""Data by name: `train(name, ...)` and `--classes`.

>>> "syn-small" in ss.NAMED, "single-common" in ss.NAMED
(True, True)
"""

NAMED.register("syn-small")(syn_small)
for queries in (1, 3, 5, 10):
    NAMED.register(f"syn-medium-{queries}")(partial(syn_medium, num_query=queries))
NAMED.register("single-common")(single_common)
NAMED.register("local-common")(local_common)
NAMED.register("near-distinct")(near_distinct)


@validated
def named_classes(name: str, folder: Path | None = None) -> DataSource:
    """The data with this name, or from the .toml or .json file at this path (relative to `folder`).

    >>> ss.named_classes("syn-small") == ss.syn_small()
    True
    """
    if Path(name).suffix in SUFFIXES:
        return read_classes((folder or Path()) / name)
    if name not in NAMED:
        raise unknown("class setting", name, [*NAMED, "a .toml or .json file"])
    return NAMED.member(name)


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
