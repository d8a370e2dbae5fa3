"""Build the sdist and the wheel, check what is in them, and use the wheel as one who installs it does.

    python release/check.py [--short] [--pythons python3.11 python3.12 ...]

1. `python -m build` makes the sdist, and the wheel from it, in `dist/`.
2. The metadata are valid, and the commit is recorded.  The sdist holds the files that git tracks and no others; the
   wheel holds those of the package.
3. The tests of the unpacked sdist can be collected.
4. In a fresh environment for each Python, outside of the source tree, the wheel is installed with the versions of
   `constraints.txt`, and the commands of SMOKE and of the README run.  Pythons that are not on this machine are named.

`--short` leaves out 3, other Pythons than the one that runs it, and the commands of the README, which have a test of
their own.  The files of `dist/` are what to publish.
"""

from __future__ import annotations

import argparse
import email.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
OWN = "python{}.{}".format(*sys.version_info[:2])
PYTHONS = (sys.executable, *sorted({"python3.11", "python3.12", "python3.13", "python3.14"} - {OWN}))
ADDED = {"PKG-INFO", "setup.cfg", "src/scansnap/origin.json"}
"""What an sdist holds beside the files of the repository."""

SMOKE = (
    ("--version", r"scansnap [\d.]+ \(commit {commit}\)"),
    ("train --preset syn-small", "Attention snapped by step"),
    ("verify lemma_1", r"lemma_1 .*: holds"),
    ("reproduce --figures 9 --claims lemma_6,theorem_4", "page: reproduction/index.html"),
)
"""Commands, and what each must say."""

SMOKE_TORCH = (("text train example --model yz --lr-z 30 --steps 40", "validation loss"),)
"""The same for what needs PyTorch, on the Python that runs this program: for others it may be very large."""

BLOCKS = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
README = {
    needs_torch: [
        (line.removeprefix("scansnap "), "")
        for block in BLOCKS
        if ("[torch]" in block) == needs_torch
        for line in block.splitlines()
        if line.startswith("scansnap ")
    ]
    for needs_torch in (False, True)
}
"""The commands of the README, by whether their block installs the extra `torch`."""


class Failed(Exception):
    """A check that failed, in a sentence."""


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(description="Build, check and try what would be published.")
    parser.add_argument("--short", action="store_true", help="try one Python and few commands, collect no tests")
    parser.add_argument("--pythons", nargs="+", help="the Pythons to try the wheel with")
    words = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="scansnap-release-") as folder:
            pythons = words.pythons or ((sys.executable,) if words.short else PYTHONS)
            check(Path(folder), pythons, short=words.short)
    except Failed as failure:
        sys.exit(f"release check: {failure}")


def check(folder: Path, pythons: Iterable[str], *, short: bool) -> None:
    """All checks, with a folder to work in."""
    with step("building"):
        sdist, wheel = build()
    with step("checking what is in them"):
        commit = check_contents(sdist, wheel)
    if not short:
        with step("collecting the tests of the sdist"):
            collect(sdist, folder)
    for name in pythons:
        python = located(name)
        if python is None:
            print(f"{name} is not on this machine: left out", flush=True)
            continue
        version = version_of(python)
        with step(f"trying the wheel with Python {version}"):
            commands = SMOKE if short else (*SMOKE, *README[False])
            with_torch = name == sys.executable and not short
            try_wheel(python, wheel, folder / f"python-{version}", commit, commands, with_torch=with_torch)
    print(f"ready to publish: {sdist.name} and {wheel.name} in {sdist.parent}")


@contextmanager
def step(words: str) -> Iterator[None]:
    """Say what is done and how long it took."""
    began = time.monotonic()
    print(f"{words} ...", flush=True)
    yield
    print(f"{words}: {time.monotonic() - began:.0f} s", flush=True)


def run(*command: str | Path, cwd: Path = ROOT, **variables: str) -> str:
    """The output of a command, which sees no other copy of the package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**environment, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))} ended with status {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def build() -> tuple[Path, Path]:
    """The sdist and the wheel, in `dist/`."""
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", target, ROOT)
    return next(target.glob("*.tar.gz")), next(target.glob("*.whl"))


def check_contents(sdist: Path, wheel: Path) -> str:
    """The commit that the files record; what they hold must be what git tracks."""
    tracked = set(run("git", "ls-files").splitlines())
    with tarfile.open(sdist) as archive:
        files = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    files = {name for name in files if ".egg-info/" not in name}
    expect_same("the sdist", files - ADDED, tracked)
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        (metadata_file,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(metadata_file)
        origin = json.loads(archive.read("scansnap/origin.json"))
    package = {name.removeprefix("src/") for name in tracked if name.startswith("src/scansnap/")}
    expect_same("the wheel", names - {"scansnap/origin.json"}, package)
    check_metadata(metadata, origin)
    commit: str = origin["commit"]
    if commit.partition("+")[0] != run("git", "rev-parse", "HEAD").strip():
        raise Failed(f"the wheel records the commit {commit}, which is not this one")
    return commit


def expect_same(what: str, files: set[str], expected: set[str]) -> None:
    """Refuse files that are missing or that nobody tracks."""
    for words, names in (("lacks", expected - files), ("holds what git does not track:", files - expected)):
        if names:
            raise Failed(f"{what} {words} {', '.join(sorted(names)[:5])} ({len(names)} in all): see MANIFEST.in")


def check_metadata(text: bytes, origin: dict[str, str]) -> None:
    """Refuse metadata that are not valid, or that other files contradict."""
    metadata = Metadata.from_email(text, validate=True)
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    if citation is None or citation[1] != str(metadata.version):
        raise Failed(f"the version is {metadata.version}, and that in CITATION.cff is not")
    page = email.parser.BytesParser().parsebytes(text).get_payload()
    relative = re.findall(r"\]\((?![a-z]+:|#)([^)]+)\)", str(page))
    if origin["repository"] and (relative or not metadata.project_urls):
        raise Failed(f"the package's page leads to {', '.join(relative[:3]) or 'no repository'}")
    if not origin["repository"]:
        print(
            "  the repository has no address: the package's page would have no pictures and no links. Give it the "
            "remote 'origin', or set SCANSNAP_REPOSITORY."
        )


def collect(sdist: Path, folder: Path) -> None:
    """Collect the tests of the unpacked sdist."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    said = run(
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "--collect-only",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        cwd=source,
        PYTHONPATH=str(source / "src"),
    )
    print(f"  {said.strip().splitlines()[-1]}")


def version_of(python: str) -> str | None:
    """A Python's version as 3.11; None if it cannot be started."""
    try:
        done = subprocess.run(
            [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def located(python: str) -> str | None:
    """The Python of that name that can be started, or one of pyenv's, whose own commands start those chosen alone."""
    installed = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/*/bin/{python}")
    return next((path for path in (python, *map(str, sorted(installed))) if version_of(path)), None)


def try_wheel(
    python: str, wheel: Path, folder: Path, commit: str, commands: Iterable[tuple[str, str]], *, with_torch: bool
) -> None:
    """Install the wheel into a fresh environment and run commands there."""
    run(python, "-m", "venv", folder / "venv")
    own_python = folder / "venv" / "bin" / "python"

    def install(*what: str) -> None:
        run(
            own_python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-compile",
            "-c",
            ROOT / "constraints.txt",
            *what,
        )

    install(str(wheel))
    where = run(own_python, "-c", "import scansnap; print(scansnap.__file__)", cwd=folder).strip()
    if not Path(where).is_relative_to(folder):
        raise Failed(f"{where} was imported in place of what was installed")
    use(folder, commands, commit)
    if with_torch:
        install(f"{wheel}[torch]")
        use(folder, (*SMOKE_TORCH, *README[True]), commit)


def use(folder: Path, smoke: Iterable[tuple[str, str]], commit: str) -> None:
    """Run commands and look at what they say."""
    for words, expected in smoke:
        said = run(folder / "venv" / "bin" / "scansnap", *words.split(), cwd=folder)
        if not re.search(expected.replace("{commit}", re.escape(commit)), said):
            raise Failed(f"scansnap {words} does not say '{expected}':\n{said[-3000:]}")
        print(f"  scansnap {words}", flush=True)


if __name__ == "__main__":
    main()
