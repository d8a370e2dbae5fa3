"""`scansnap verify`."""

from __future__ import annotations

import json as json_module
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scansnap.base.errors import InputError
from scansnap.cli import common
from scansnap.figures.picture import save_picture

if TYPE_CHECKING:
    from scansnap.claims.claim import Verdict
    from scansnap.data.sequence_classes import SequenceClasses

MARKS = {
    "holds": "✓", "holds under its assumptions only": "◐", "fails": "✗", "assumptions not met": "?",
    "does not apply": " ",
}  # fmt: skip


def command(
    claims: Annotated[
        list[str] | None,
        typer.Argument(help="Claims to explain in full, as theorem_3 or lemma_1; all of them in a table unless given."),
    ] = None,
    preset: Annotated[str | None, common.FLOW_PRESET_OPTION] = None,
    classes: Annotated[Path | None, common.CLASSES_OPTION] = None,
    lr_y: Annotated[float | None, typer.Option("--lr-y", help="Learning rate of the decoder Y.")] = None,
    lr_z: Annotated[float | None, typer.Option("--lr-z", help="Learning rate of the attention logits Z.")] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", help="Where to draw one claim (.png, .pdf, .svg); in results/ unless given."),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
) -> None:
    """Check the paper's lemmas, theorems and corollaries against exact dynamics.

    Each claim is checked in a setting of its own that meets its conditions, or on your classes and rates. The verdict
    is: holds, holds under its assumptions only (not under true SGD, finite T, equal rates or momentum), or fails.
    """
    common.check_picture(picture)
    chosen: SequenceClasses | None = None
    rates: dict[str, Any] = {}
    if preset or classes:
        _, chosen, rates = common.setting(preset, classes, "flow")
    given = {"lr_y": lr_y, "lr_z": lr_z}
    rates = {name: rates.get(name) if value is None else value for name, value in given.items()}

    from scansnap.claims.verify import check_rates, verify

    names = claims or []
    if picture is not None and len(names) != 1:
        raise InputError("--picture draws one claim: name it, as in scansnap verify theorem_3.")
    table = not json and not names
    if table:
        check_rates(rates["lr_y"], rates["lr_z"])  # before the heading is printed
        print(f"  {'claim':19} {'verdict':33} {'predicted':>11} {'measured':>11}  statement")
    verdicts = verify(
        *names,
        classes=chosen,
        **rates,
        progress=False if json else None,
        on_verdict=(lambda one: print(_row(one, own=chosen is not None), flush=True)) if table else None,
    )
    if json:
        found = [one.as_dict() for one in verdicts]
        print(json_module.dumps(found[0] if len(names) == 1 else found, allow_nan=False))
    elif not names:
        print(_count(verdicts))
        print("for one in full, with a picture: scansnap verify theorem_3; for programs: scansnap verify --json")
    else:
        for one in verdicts:
            print(_explanation(one))
    # Last, so that no verdict is lost with a picture that cannot be written.
    if picture is not None or (len(names) == 1 and not json):
        drawn = _draw(verdicts[0], picture)
        if not json:
            print(f"picture: {drawn}")


def _row(verdict: Verdict, *, own: bool) -> str:
    """One line of the table; on classes of one's `own` it says where the claim is about something else."""
    leading = verdict.leading
    numbers = f"{leading.predicted:11.4g} {leading.measured:11.4g}" if leading else f"{'':23}"
    note = f"({verdict.claim.note}) " if own and verdict.claim.note else ""
    statement = textwrap.shorten(verdict.reason or note + verdict.claim.statement, 78, placeholder=" …")
    return f"{MARKS[verdict.verdict]} {verdict.id:19} {verdict.verdict:33} {numbers}  {statement}"


def _count(verdicts: list[Verdict]) -> str:
    kinds = [one.verdict for one in verdicts]
    seconds = sum(one.seconds for one in verdicts)
    return "; ".join(f"{kinds.count(kind)} {kind}" for kind in MARKS if kind in kinds) + f" ({seconds:.0f} s)"


def _explanation(verdict: Verdict) -> str:
    from scansnap.claims.claim import ROLES
    from scansnap.theory import assumptions

    claim, setting = verdict.claim, verdict.setting
    lines = [
        f"{MARKS[verdict.verdict]} {claim.id} ({claim.where}): {verdict.verdict}",
        f"  {claim.statement}",
        f"  conditions: {claim.conditions}",
        f"  checked on: {setting.classes!r}, lr_y {setting.lr_y:g}, lr_z {setting.lr_z:g}",
        f"  how:        {claim.how}",
    ]
    if claim.note:
        lines.append(f"  depends on: {claim.depends_on}")
    if claim.correction:
        lines.append(f"  correction: {claim.correction}")
    if verdict.reason:
        return "\n".join([*lines, f"  {verdict.reason}"])
    for role, words in ROLES.items():
        mine = [one for one in verdict.measurements if one.role == role]
        if mine:
            lines.append(f"  {words}:")
        for one in mine:
            lines.append(
                f"    {'ok ' if one.holds else 'NOT'} {one.label}: predicted {one.predicted:.6g}, "
                f"measured {one.measured:.6g}, deviation {one.deviation:.2g} (allowed {one.allowed:.2g})"
            )
    if verdict.unmet and verdict.verdict == "assumptions not met":
        lines.append(f"  it promised nothing here: {', '.join(verdict.unmet)}")
    broken = assumptions(setting.classes, lr_y=setting.lr_y, lr_z=setting.lr_z).broken
    lines.append("  the paper's assumptions: " + ("all met" if not broken else "not met are"))
    lines += [f"    {one.statement}: {one.advice}" for one in broken]
    how = "a flipped sign" if claim.wrong_factor < 0 else f"a wrong factor of {claim.wrong_factor:.10g}"
    lines.append(f"  {how} in the prediction would be noticed")
    return "\n".join(lines)


def _draw(verdict: Verdict, picture: Path | None) -> Path:
    from scansnap.figures import claim

    return save_picture(claim.draw(claim.prepare(verdict)), picture or Path("results") / f"{verdict.id}.png")
