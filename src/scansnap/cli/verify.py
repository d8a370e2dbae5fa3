"""`scansnap verify`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Argument, Flag, command
from scansnap.cli.request import CLASSES, PRESET, PUBLISHED_PRESETS, find_classes, find_preset
from scansnap.cli.system import SET, SYSTEM, choose_system
from scansnap.runtime.errors import InputError

if TYPE_CHECKING:
    from scansnap.claims.claim import Claim, Verdict, VerdictWord

COLORS: dict[VerdictWord, str] = {"holds": "green", "holds under its assumptions only": "yellow", "fails": "red"}


@command(common.OVERWRITE_FLAG, listed=PUBLISHED_PRESETS)
def verify(
    claims: Annotated[
        tuple[str, ...],
        Argument("Claims to explain in full, as theorem_3 or 'Eq. 10'; by default a table of all claims."),
    ] = (),
    claims_file: Annotated[
        Path | None,
        Flag("A Python file of your own claims: all of them are checked, unless some are named.", name="--from"),
    ] = None,
    system: Annotated[str | None, SYSTEM] = None,
    settings: Annotated[tuple[str, ...], SET] = (),
    preset: Annotated[str | None, PRESET] = None,
    classes: Annotated[str | None, CLASSES] = None,
    lr_y: Annotated[float | None, Flag("Learning rate of the decoder Y.")] = None,
    lr_z: Annotated[float | None, Flag("Learning rate of the attention logits Z.")] = None,
    picture: Annotated[Path | None, Flag("Where to draw one claim (.png, .pdf, .svg); by default in results/.")] = None,
    page: Annotated[Path | None, Flag("Write verdicts, measurements and pictures to one page (.html).")] = None,
    strict: Annotated[bool, Flag("Exit with 1 if a claim fails, for scripts.")] = False,
    list_only: Annotated[bool, Flag("List claims, with places and statements, and check none.", name="--list")] = False,
    json: Annotated[bool, common.JSON] = False,
) -> None:
    """Check the paper's lemmas, theorems and corollaries, or your own claims, against exact dynamics.

    Each claim is checked in a setting of its own that meets its conditions, or on your classes and rates. The verdict
    is: holds, holds under its assumptions only (not under true SGD, finite T, equal rates or momentum), or fails.
    """
    own_claims = _read_own_claims(claims_file, system, settings)
    if list_only:
        if picture is not None or page is not None or strict:
            raise InputError("--list checks no claim: leave out --picture, --page and --strict.")
        _print_list(claims, own_claims, json=json)
        return
    setting = _read_setting(preset, classes, lr_y, lr_z)

    from scansnap.claims.check import check_rates
    from scansnap.claims.verify import select
    from scansnap.claims.verify import verify as check_claims
    from scansnap.report.html import check_page

    if page is not None:
        check_page(page)
    selected = select(*claims, claims=own_claims)
    is_single = len(claims) == len(selected) == 1  # an equation may have several claims
    if picture is not None and not is_single:
        raise InputError("--picture draws one claim: name it, as in scansnap verify theorem_3.")
    if picture is None and is_single and not json:
        picture = Path("results") / f"{selected[0].id}.png"
    common.check_picture(picture)
    check_rates(lr_y=setting["lr_y"], lr_z=setting["lr_z"])  # before the heading is printed
    verdicts = check_claims(
        *claims,
        claims=own_claims,
        **setting,
        progress=False if json else None,
        on_verdict=None if json or claims else _RowPrinter(selected),
    )
    if json:
        plain = [verdict.as_dict() for verdict in verdicts]
        common.echo_json(plain[0] if is_single else plain)
    elif claims:
        _print_in_full(verdicts)
    else:
        _print_counts(verdicts, system, claims_file)
    # Last, so that a file that cannot be written does not lose any verdict.
    _write_files(verdicts, picture, page, quiet=json)
    if strict and any(verdict.verdict == "fails" for verdict in verdicts):
        sys.exit(1)


def _read_setting(preset: str | None, classes: str | None, lr_y: float | None, lr_z: float | None) -> dict[str, Any]:
    """Classes and rates to check claims on, in place of their own; None for those that flags and preset leave open."""
    experiment = None if preset is None else find_preset(preset)
    source = experiment if classes is None else find_classes(classes)
    rates = None if experiment is None else experiment.flow_options((1.0,))
    return {
        "classes": None if source is None else source.classes,
        "lr_y": rates.lr_y if rates is not None and lr_y is None else lr_y,
        "lr_z": rates.lr_z if rates is not None and lr_z is None else lr_z,
    }


def _read_own_claims(file: Path | None, system: str | None, settings: Sequence[str]) -> list[Claim] | None:
    """The claims about a system and those of a user's file; None for the paper's."""
    from scansnap.claims.catalog import claims_about, claims_of
    from scansnap.claims.verify import read_claims
    from scansnap.validation.user_code import run_user_file

    own = None
    if file is not None:  # a file with a system need not define claims
        own = read_claims(file) if system is None else claims_of(run_user_file(file))
    choice = choose_system(system, None, settings)
    return own if choice is None else [*claims_about(choice.system), *(own or ())]


def _print_list(names: Sequence[str], own_claims: Sequence[Claim] | None, *, json: bool) -> None:
    """Print the claims named, by default all about the system and of the file, or else all that there are."""
    from scansnap.claims.catalog import all_claims
    from scansnap.claims.verify import select

    selected = select(*names, claims=own_claims) if names or own_claims is not None else all_claims()
    if json:
        common.echo_json([claim.as_dict() for claim in selected])
        return
    width = max((len(claim.id) for claim in selected), default=0)
    for claim in selected:
        _print_row(claim.row(width))


def _print_row(row: str, color: str | None = None) -> None:
    """Print a row of a table, on a terminal in one line."""
    columns = shutil.get_terminal_size((1000, 0)).columns
    echo(row if len(row) <= columns else f"{row[: columns - 1].rstrip()}…", color=color)


class _RowPrinter:
    """Prints the rows of a table one by one."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        from scansnap.claims.claim import NAME_WIDTH, table_heading

        self.width = max(NAME_WIDTH, *(len(claim.id) for claim in claims))
        _print_row(table_heading(self.width))

    def __call__(self, verdict: Verdict) -> None:
        _print_row(verdict.row(self.width), color=COLORS.get(verdict.verdict))


def _print_in_full(verdicts: Sequence[Verdict]) -> None:
    for verdict in verdicts:
        first_line, _, rest = str(verdict).partition("\n")
        echo(first_line, color=COLORS.get(verdict.verdict))
        echo(rest)


def _print_counts(verdicts: Sequence[Verdict], system: str | None, file: Path | None) -> None:
    """Print how many claims have each verdict, and how to see one in full."""
    from scansnap.claims.claim import count_categories
    from scansnap.report.claims_page import count_verdicts

    echo(f"{count_verdicts(verdicts)} ({sum(verdict.seconds for verdict in verdicts):.0f} s)")
    if file is None:
        echo(f"by category: {count_categories(verdicts)}")
    if any(verdict.verdict == "holds under its assumptions only" for verdict in verdicts):
        echo("the numbers of a claim marked ◐ are from a case where an assumption is dropped")
    own = (f" --system {system}" if system else "") + (f" --from {file}" if file else "")
    name = verdicts[0].id if own else "theorem_3"
    echo(
        f"for one claim in full, with a picture: scansnap verify {name}{own}; for programs: scansnap verify{own} --json"
    )


def _write_files(verdicts: Sequence[Verdict], picture: Path | None, page: Path | None, *, quiet: bool) -> None:
    """Write the picture of the first verdict and the page of all, and print where they are."""
    if picture is not None:
        from scansnap.figures import claim

        common.save_picture(claim.draw(verdicts[0]), picture)
    if page is not None:
        from scansnap.report.claims_page import write_claims_page

        write_claims_page(page, verdicts)
    for name, path in (("picture", picture), ("page", page)):
        if path is not None and not quiet:
            echo(f"{name}: {path}")
