"""Time of whole commands, and which large modules they import.

    python benchmarks/startup.py [--repeats 5] [--cold | --parts]

Each command is a process of its own in a folder of its own; printed are the medians of the user and system time of
`repeats` processes and of their time by the clock, after one process that is not counted.  With --cold every process
also begins without compiled code, as the first command on a new machine does.  With --parts it is the parts of `train`
that are timed, one after another.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

COMMANDS = {
    "--help": "--help",
    "train --help": "train --help",
    "completion of train --l": "",
    "train": "train --preset syn-small",
    "flow": "flow --preset syn-small",
    "sweep": "sweep --preset syn-small --lr-y 1,2 --seeds 0,1",
    "verify": "verify lemma_1",
    "figure": "figure 4 --picture figure.png",
    "train, two layers": "train --preset syn-small --layers 2",
}
COMPLETION = {
    "_SCANSNAP_COMPLETE": "bash_complete",
    "COMP_WORDS": "scansnap train --l",
    "COMP_CWORD": "2",
}
COLD = ("train", "flow")
LARGE = ("torch", "numba", "scipy", "pandas", "xarray", "zarr", "matplotlib", "rich", "pydantic", "numpy")
PROGRAM = """
import sys
sys.argv[0] = "scansnap"
from scansnap.__main__ import run
try:
    run()
finally:
    with open("modules.txt", "w") as file:
        file.write("\\n".join(sys.modules))
"""

PARTS = {
    "Python and the command": "import scansnap.cli.app, scansnap.cli.train",
    "pandas and xarray": "import pandas, xarray",
    "numba and the kernel": "import scansnap.dynamics.train, scansnap.dynamics.kernel_engine",
    "zarr": "import zarr, scansnap.results.store",
    "training and storing": "import scansnap as ss; setting = ss.PUBLISHED['syn-small']; "
    "result = ss.train(setting.classes, **vars(setting.options), store='run.zarr', progress=False)",
    "matplotlib": "from scansnap.figures import attention_over_time as picture; import matplotlib.backends.backend_agg",
    "drawing": "picture.draw(picture.prepare(result)).savefig('run.png', dpi=150)",
}
TIMED = """
import json, sys, time
names, spent, before = {}, {}, 0.0
for part, code in json.loads(sys.argv[1]).items():
    exec(code, names)
    spent[part], before = time.process_time() - before, time.process_time()
print(json.dumps(spent))
"""


def measure_parts() -> dict[str, float]:
    """Processor seconds of the parts of `train`, in one process."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-c", TIMED, json.dumps(PARTS)]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure(name: str, *, cold: bool = False) -> tuple[float, float, list[str]]:
    """Seconds of a command by processor and clock, and the large modules that it imported."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **({} if COMMANDS[name] else COMPLETION)}
        if cold:
            environment["NUMBA_CACHE_DIR"] = folder
        before = os.times()
        finished = subprocess.run(
            [sys.executable, "-c", PROGRAM, *COMMANDS[name].split()],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        after = os.times()
        if finished.returncode:
            raise SystemExit(f"scansnap {COMMANDS[name]}: {finished.stderr}")
        imported = set(Path(folder, "modules.txt").read_text().split())
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, after.elapsed - before.elapsed, [module for module in LARGE if module in imported]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--only", help="one of the commands")
    parser.add_argument("--parts", action="store_true")
    arguments = parser.parse_args()
    if arguments.parts:
        measure_parts()
        runs = [measure_parts() for _ in range(arguments.repeats)]
        for part in PARTS:
            print(f"{part:>28} {statistics.median(run[part] for run in runs):6.2f} s")
        return
    names = [arguments.only] if arguments.only else COLD if arguments.cold else COMMANDS
    for name in names:
        if not arguments.cold:
            measure(name)
        times = [measure(name, cold=arguments.cold) for _ in range(arguments.repeats)]
        spent, elapsed = statistics.median(run[0] for run in times), statistics.median(run[1] for run in times)
        print(f"{name:>24} {spent:6.2f} s {elapsed:6.2f} s  {', '.join(times[0][2])}", flush=True)


if __name__ == "__main__":
    main()
