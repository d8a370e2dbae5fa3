"""`scansnap check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.results.store import check_store
from scansnap.runtime.errors import StoreError
from scansnap.runtime.progress import progress_bar
from scansnap.storage.folder import Condition


def check(
    store: Annotated[
        Path, typer.Argument(help="A result, the looks of a watch, counts, or the folder of a trained text model.")
    ],
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Read every file of a result and say which parts are intact; the status is 2 if any is damaged."""
    with progress_bar(f"reading {store}", None, False if json else None):
        condition = check_store(store)
    if json:
        common.echo_json({"store": str(store), "intact": condition.is_intact, **asdict(condition)})
    else:
        for name, files in condition.damaged.items():
            echo(f"{'✗' if files else '✓'} {name}{f': {len(files)} damaged, {files[0]} first' if files else ''}")
        echo(_sentence(store, condition))
    if not condition.is_intact:
        raise StoreError(f"{store} is damaged.")


def _sentence(store: Path, condition: Condition) -> str:
    lost = [name for name, files in condition.damaged.items() if files]
    words = f"{len(condition.damaged) - len(lost)} of {len(condition.damaged)} parts are intact"
    return f"{store}{'' if condition.complete else ' is unfinished'}: {words}"
