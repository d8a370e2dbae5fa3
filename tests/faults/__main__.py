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
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.attacks import after_damage, after_kills, after_power_cuts, on_full_disks, together
from tests.faults.calls import call_with_nonsense, good_calls, stop_before_long_work
from tests.faults.inputs import read_spoiled_files, run_spoiled
from tests.faults.values import attempt
from tests.faults.works import WORKS, WRITTEN

CALLS = {"theory": 16_000, "data": 14_000, "runs": 8_000, "results": 6_000, "text": 6_000}
"""How often functions of each group are called."""


def rows(scale: float, seed: int) -> dict[str, Callable[[Path], Counter[str]]]:
    """What is tried, and how: by default 120 kills, 1,170 damaged stores and so on."""
    every = round(1 / scale)

    def share(number: int) -> int:
        return max(1, round(scale * number))

    commands = [name for name, work in WORKS.items() if work.command]
    return {
        **{f"kills {name}": partial(after_kills, name=name, kills=share(15), seed=seed) for name in commands},
        **{f"damage {name}": partial(after_damage, name=name, count=share(130), seed=seed) for name in WRITTEN},
        **{f"writers {name}": partial(together, name=name, rounds=share(20)) for name in WRITTEN},
        **{f"power-cuts {name}": partial(after_power_cuts, name=name, draws=2, every=every) for name in WRITTEN},
        **{f"full-disk {name}": partial(on_full_disks, name=name, every=every) for name in WRITTEN},
        **{f"calls {group}": partial(_call, group=group, count=share(CALLS[group]), seed=seed) for group in CALLS},
        "files": partial(read_spoiled_files, count=share(1200), seed=seed),
        "command-lines": partial(_run_commands, count=share(1000), seed=seed),
    }


def is_bad(result: str) -> bool:
    """Whether something came out that must not: its name is in capitals."""
    return result.removeprefix("then ").removeprefix("first ")[:2].isupper()


def _call(folder: Path, group: str, count: int, seed: int) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        calls = good_calls(group)
        stop_before_long_work(patch)
        refused = {name for name, call in calls.items() if attempt(call, name) != "valid"}
        wrong = Counter(f"REFUSED GOOD CALL {name}" for name in refused - {"reproduce"})  # which takes long
        return call_with_nonsense(calls, count, seed) + wrong


def _run_commands(folder: Path, count: int, seed: int) -> Counter[str]:
    with pytest.MonkeyPatch.context() as patch:
        stop_before_long_work(patch)
        return run_spoiled(count, seed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="the size of the round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[], help="the first words, or the names, of rows to run")
    options = parser.parse_args()
    bad = 0
    for name, attack in rows(options.scale, options.seed).items():
        if options.only and not {name, name.split()[0]} & set(options.only):
            continue
        began, home = time.monotonic(), Path.cwd()
        with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
            folder = Path(temporary) / "folder"
            folder.mkdir()
            patch.setenv("SCANSNAP_CACHE", str(folder.parent / "cache"))
            os.chdir(folder)
            try:
                seen = attack(folder)
            finally:
                os.chdir(home)
        counts = ", ".join(f"{count:,} {result}" for result, count in sorted(seen.items()))
        print(f"{name}: {counts} ({time.monotonic() - began:.0f} s)", flush=True)
        bad += any(map(is_bad, seen))
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
