"""`scansnap verify`."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.system import SET_OPTION, SYSTEM_OPTION, asked_system
from scansnap.cli.train import CLASSES_OPTION, PRESET_OPTION, find_setting
from scansnap.runtime.errors import InputError, number_text
from scansnap.runtime.formulas import readable

if TYPE_CHECKING:
    from scansnap.claims.claim import Verdict, VerdictWord
    from scansnap.data.sequence_classes import SequenceClasses

MARKS: dict[VerdictWord, str] = {
    "holds": "✓",
    "holds under its assumptions only": "◐",
    "fails": "✗",
    "assumptions not met": "?",
    "does not apply": " ",
}

COLORS: dict[VerdictWord, str] = {
    "holds": typer.colors.GREEN,
    "holds under its assumptions only": typer.colors.YELLOW,
    "fails": typer.colors.RED,
}


def verify(
    claims: Annotated[
        list[str] | None,
        typer.Argument(help="Claims to explain in full, as theorem_3 or lemma_1; by default a table of all claims."),
    ] = None,
    claims_file: Annotated[
        Path | None,
        typer.Option(
            "--from", help="A Python file of your own claims: all of them are checked, unless some are named."
        ),
    ] = None,
    system: Annotated[str | None, SYSTEM_OPTION] = None,
    setting: Annotated[list[str] | None, SET_OPTION] = None,
    preset: Annotated[str | None, PRESET_OPTION] = None,
    classes: Annotated[str | None, CLASSES_OPTION] = None,
    lr_y: Annotated[float | None, typer.Option(help="Learning rate of the decoder Y.")] = None,
    lr_z: Annotated[float | None, typer.Option(help="Learning rate of the attention logits Z.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option(help="Where to draw one claim (.png, .pdf, .svg); by default in results/."),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write verdicts, measurements and pictures to one page (.html).")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if a claim fails, for scripts.")] = False,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Check the paper's lemmas, theorems and corollaries, or your own claims, against exact dynamics.

    Each claim is checked in a setting of its own that meets its conditions, or on your classes and rates. The verdict
    is: holds, holds under its assumptions only (not under true SGD, finite T, equal rates or momentum), or fails.
    """
    names = claims or []
    if picture is not None and len(names) != 1:
        raise InputError("--picture draws one claim: name it, as in scansnap verify theorem_3.")
    own_classes: SequenceClasses | None = None
    rates: dict[str, float | None] = {"lr_y": lr_y, "lr_z": lr_z}
    if preset or classes:
        _, source, experiment = find_setting(preset, classes)
        own_classes = source.classes
        if experiment is not None:
            published = experiment.flow_options((1.0,))
            rates = {name: getattr(published, name) if rate is None else rate for name, rate in rates.items()}

    from scansnap.claims.catalog import claims_about, claims_of
    from scansnap.claims.check import check_rates
    from scansnap.claims.verify import read_claims, select
    from scansnap.claims.verify import verify as check_claims
    from scansnap.report.claims_page import count_verdicts
    from scansnap.validation.user_code import run_user_file

    if page is not None:
        from scansnap.report.claims_page import write_claims_page
        from scansnap.report.html import check_page

        check_page(page)
    own_claims = None
    if claims_file is not None:  # a file with a system need not define claims
        own_claims = claims_of(run_user_file(claims_file)) if system else read_claims(claims_file)
    if asked := asked_system(system, None, setting):
        own_claims = [*claims_about(asked.system), *(own_claims or ())]
    selected = select(*names, claims=own_claims)
    if picture is None and len(names) == 1 and not json:
        picture = Path("results") / f"{selected[0].id}.png"
    common.check_picture(picture)
    width = max(19, *(len(claim.id) for claim in selected))
    table = not json and not names
    if table:
        check_rates(**rates)  # before the heading is printed
        heading = f"  {'claim':{width}} {'verdict':33} {'category':28} {'predicted':>11} {'measured':>11}  statement"
        echo(_cut(heading))

    def show_row(verdict: Verdict) -> None:
        echo(_cut(_row(verdict, own_classes=own_classes is not None, width=width)), color=COLORS.get(verdict.verdict))

    verdicts = check_claims(
        *names,
        claims=own_claims,
        classes=own_classes,
        lr_y=rates["lr_y"],
        lr_z=rates["lr_z"],
        progress=False if json else None,
        on_verdict=show_row if table else None,
    )
    if json:
        plain = [verdict.as_dict() for verdict in verdicts]
        common.echo_json(plain[0] if len(names) == 1 else plain)
    elif not names:
        echo(f"{count_verdicts(verdicts)} ({sum(verdict.seconds for verdict in verdicts):.0f} s)")
        if claims_file is None:
            echo(_categories(verdicts))
        if any(verdict.verdict == "holds under its assumptions only" for verdict in verdicts):
            echo("the numbers of a claim marked ◐ are from a case where an assumption is dropped")
        own = (f" --system {system}" if system else "") + (f" --from {claims_file}" if claims_file else "")
        name = verdicts[0].id if own else "theorem_3"
        echo(
            f"for one claim in full, with a picture: scansnap verify {name}{own}; "
            f"for programs: scansnap verify{own} --json"
        )
    else:
        own_ids = {claim.id for claim in own_claims or ()}
        for verdict in verdicts:
            heading, _, rest = _explanation(verdict, own_claim=verdict.id in own_ids).partition("\n")
            echo(heading, color=COLORS.get(verdict.verdict))
            echo(rest)
    # Last, so that a file that cannot be written does not lose any verdict.
    if picture is not None:
        from scansnap.figures import claim

        common.save_picture(claim.draw(verdicts[0]), picture)
        if not json:
            echo(f"picture: {picture}")
    if page is not None:
        write_claims_page(page, verdicts)
        if not json:
            echo(f"page: {page}")
    if strict and any(verdict.verdict == "fails" for verdict in verdicts):
        raise typer.Exit(1)


def _cut(row: str) -> str:
    """A row of the table, on a terminal in one line."""
    columns = shutil.get_terminal_size((1000, 0)).columns
    return row if len(row) <= columns else f"{row[: columns - 1].rstrip()}…"


def _row(verdict: Verdict, *, own_classes: bool, width: int = 19) -> str:
    """One line of the table; for a user's own classes it notes if the claim is not about them."""
    leading = verdict.leading
    numbers = (
        " ".join(f"{number_text(x, '.4g'):>11}" for x in (leading.predicted, leading.measured))
        if leading
        else f"{'':23}"
    )
    note = f"({verdict.claim.note}) " if own_classes and verdict.claim.note else ""
    statement = textwrap.shorten(verdict.reason or note + readable(verdict.claim.statement), 78, placeholder=" …")
    words = f"{verdict.verdict:33} {verdict.claim.category:28}"
    return f"{MARKS[verdict.verdict]} {verdict.id:{width}} {words} {numbers}  {statement}"


def _categories(verdicts: Sequence[Verdict]) -> str:
    """What became of the paper's words, counted."""
    from scansnap.claims.claim import CATEGORIES

    words = [verdict.claim.category for verdict in verdicts]
    return "by category: " + "; ".join(f"{words.count(name)} {name}" for name in CATEGORIES if name in words)


def _explanation(verdict: Verdict, *, own_claim: bool) -> str:
    """The verdict in full; for a user's `own_claim` it says whether the check can fail, as tests do for the others."""
    from scansnap.claims.check import ROLES, classes_in_words
    from scansnap.claims.claim import CATEGORIES

    claim, setting = verdict.claim, verdict.setting
    lines = [
        f"{MARKS[verdict.verdict]} {claim.id} ({claim.where}): {verdict.verdict}",
        f"  {readable(claim.statement)}",
        f"  category:   {claim.category} ({CATEGORIES[claim.category]}), in its own setting",
        f"  conditions: {readable(claim.conditions)}",
    ]
    if claim.depends_on != "nothing":
        lines.append(f"  checked on: {setting.classes!r}, lr_y {setting.lr_y:g}, lr_z {setting.lr_z:g}")
    if claim.depends_on.startswith("the classes"):
        lines[-1] += f"; {classes_in_words(setting.classes)}"
    if claim.how:
        lines.append(f"  how:        {readable(claim.how)}")
    if claim.note and claim.depends_on != "nothing":
        lines.append(f"  depends on: {claim.depends_on}")
    if claim.correction:
        lines.append(f"  correction: {readable(claim.correction)}")
    if verdict.reason:
        return "\n".join([*lines, f"  {verdict.reason}"])
    for role, words in ROLES.items():
        in_role = [measurement for measurement in verdict.measurements if measurement.role == role]
        if in_role:
            lines.append(f"  {words}:")
        for measurement in in_role:
            lines.append(
                f"    {'ok ' if measurement.holds else 'NOT'} {readable(measurement.label)}: "
                f"predicted {measurement.predicted_text}, measured {measurement.measured_text}, "
                f"deviation {number_text(measurement.deviation, '.2g')} (allowed {measurement.allowed:.2g})"
            )
    if setting != claim.setting():
        lines.append(f"  on your classes and rates, whatever its category, it is: {verdict.verdict}")
    if verdict.verdict == "assumptions not met":
        lines.append(f"  the claim promises nothing here: {', '.join(verdict.unmet)}")
    broken = verdict.broken_assumptions
    accepted = f"all met (ten times is taken for much larger; η_Y/η_Z = {setting.lr_y / setting.lr_z:.6g})"
    if claim.depends_on != "nothing":
        lines.append("  the paper's assumptions: " + ("not met are" if broken else accepted))
        lines += [readable(f"    {assumption.statement}: {assumption.advice}") for assumption in broken]
    error = "a flipped sign" if claim.wrong_factor < 0 else f"a wrong factor of {claim.wrong_factor:.10g}"
    noticed = not own_claim or verdict.notices_wrong_factor()
    lines.append(f"  {error} in the prediction would {'' if noticed else 'NOT '}be noticed")
    return "\n".join(lines)
