"""The whole adversarial round, with its counts: `python -m tests.faults`, or `python -m tests.faults --scale 0.1`.

Every row must end in results that are identical, valid or refused in one sentence.  Anything else is printed in
capitals, and the status is 1.  `--only kills damage` runs some of the rows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.calls import stop_before_long_work
from tests.faults.hurry import hurry
from tests.faults.test_calls import CLAIMS, GROUPS, call_with_nonsense
from tests.faults.test_commands import run_spoiled
from tests.faults.test_damage import after_damage
from tests.faults.test_disk import after_power_cuts, on_full_disks
from tests.faults.test_files import read_spoiled_files
from tests.faults.test_writers import COMMANDS, after_kills, together
from tests.faults.works import WORKS

Row = tuple[str, Callable[[Path, pytest.MonkeyPatch], Counter[str]]]


def rows(scale: float, seed: int) -> Iterator[Row]:
    """What is tried, and how: by default 120 kills, 1,000 damaged stores and so on."""

    def share(number: int) -> int:
        return max(1, round(scale * number))

    for name in COMMANDS:
        yield f"kills {name}", lambda folder, patch, name=name: after_kills(folder, name, share(15), seed)
    for name, work in WORKS.items():
        yield f"damage {name}", lambda folder, patch, work=work: after_damage(folder, work, share(130), seed)
        yield f"writers {name}", lambda folder, patch, name=name: together(folder, name, share(20))

        def disk(folder: Path, patch: pytest.MonkeyPatch, work=work) -> Counter[str]:  # type: ignore[no-untyped-def]
            hurry(patch.setattr)
            return after_power_cuts(folder, work, draws=2, every=round(1 / scale))

        def full(folder: Path, patch: pytest.MonkeyPatch, work=work) -> Counter[str]:  # type: ignore[no-untyped-def]
            hurry(patch.setattr)
            return on_full_disks(folder, work, every=round(1 / scale))

        yield f"power-cuts {name}", disk
        yield f"full-disk {name}", full
    for group, count in {"theory": 16_000, "data": 14_000, "runs": 8_000, "results": 6_000, "text": 6_000}.items():

        def calls(folder: Path, patch: pytest.MonkeyPatch, group=group, count=count) -> Counter[str]:  # type: ignore[no-untyped-def]
            (folder / "claims.py").write_text(CLAIMS)
            made = GROUPS[group](folder)
            stop_before_long_work(patch)
            return call_with_nonsense(made, share(count), seed)

        yield f"calls {group}", calls
    yield "files", lambda folder, patch: read_spoiled_files(folder, share(1200), seed)

    def lines(folder: Path, patch: pytest.MonkeyPatch) -> Counter[str]:
        stop_before_long_work(patch)
        return run_spoiled(share(1000), seed)

    yield "command-lines", lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="the size of the round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="the first words, or the names, of rows to run")
    options = parser.parse_args()
    bad = 0
    for name, attempt in rows(options.scale, options.seed):
        if options.only and not {name, name.split()[0]} & set(options.only):
            continue
        began, home = time.monotonic(), Path.cwd()
        with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
            folder = Path(temporary) / "folder"
            folder.mkdir()
            patch.setenv("SCANSNAP_CACHE", str(folder.parent / "cache"))
            if name.split()[0] in ("calls", "files", "command-lines"):
                os.chdir(folder)
            try:
                seen = attempt(folder, patch)
            finally:
                os.chdir(home)
        counts = ", ".join(f"{count:,} {result}" for result, count in sorted(seen.items()))
        print(f"{name}: {counts} ({time.monotonic() - began:.0f} s)", flush=True)
        bad += any(result[:2].isupper() for result in seen)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
