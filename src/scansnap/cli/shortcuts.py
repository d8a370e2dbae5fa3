"""`scansnap shortcuts`."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.runtime.errors import InputError, unknown
from scansnap.shortcuts.options import ShortcutOptions

if TYPE_CHECKING:
    from scansnap.shortcuts.result import Finding, Shortcuts

FAILURES = {
    "shortcut": "words that tell a label beyond chance",
    "unproven": "words that may do so by chance, but attention picks, in the texts or in the population",
    "copies": "words that do so only by copies of a text",
    "bad-rows": "rows that are left out",
}
"""What --fail-on names."""

NAMED = 10
"""Words that the reason of a failure names."""

FAILED = 1
"""The exit status of a command that found what --fail-on names."""


@with_flags(ShortcutOptions, defaults=True)
def command(
    source: Annotated[
        str,
        typer.Argument(
            help="A CSV, JSON lines or Parquet file, a folder that Hugging Face datasets saved, or example, which is "
            "made up."
        ),
    ],
    text: Annotated[str, typer.Option("--text", help="The column of texts; review.body leads into nested objects.")],
    label: Annotated[str, typer.Option("--label", help="The column of labels.")],
    top: Annotated[int, typer.Option("--top", min=0, help="How many words of each verdict to print.")] = 10,
    page: Annotated[Path | None, typer.Option("--page", help="Write everything to one page (.html).")] = None,
    table: Annotated[
        Path | None, typer.Option("--table", help="Write every word that looks distinct (.csv, .parquet, .json).")
    ] = None,
    allow: Annotated[
        Path | None,
        typer.Option(
            "--allow", help="A file of words, one on each line, that may tell the label: --fail-on ignores them."
        ),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            "--fail-on",
            help=f"End with status {FAILED} if there are any of these, several separated by commas: "
            f"{'; '.join(f'{name} ({meaning})' for name, meaning in FAILURES.items())}.",
        ),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Find words that tell the label of a text, and say which of them attention picks and which may be by chance.

    The label is the next token, one query asks for it, and words are contextual tokens. Rows that cannot be used are
    counted and reported. The status is 0, or 1 if --fail-on applies, or 2 if the command cannot be carried out. Start
    the same command again after an interruption and it goes on.
    """
    from scansnap.shortcuts.find import shortcuts
    from scansnap.shortcuts.result import check_table

    options = read_flags(flags, ShortcutOptions)
    failures = _failures(fail_on)
    if "unproven" in failures and options.get("attention") is False:
        raise InputError(
            "--fail-on names unproven words that attention picks, but --no-attention trains none: leave one out."
        )
    if table is not None:
        check_table(table)
    if page is not None:
        from scansnap.report.html import check_page

        check_page(page)
    allowed = [] if allow is None else _words(allow)
    result = shortcuts(source, text=text, label=label, allow=allowed, progress=False if json else None, **options)
    if table is not None:
        result.write_table(table)
    if page is not None:
        from scansnap.report.shortcuts_page import write_shortcuts_page

        write_shortcuts_page(page, result)
    reasons = _why_failed(result, failures)
    if json:
        echo(json_module.dumps({**result.plain(), "failed_on": reasons}, ensure_ascii=False, allow_nan=False))
    else:
        _print(result, top)
        for kind, path in (("page", page), ("table", table)):
            if path is not None:
                echo(f"{kind}: {path}")
    if reasons:
        echo(f"scansnap: --fail-on: {'; '.join(reasons)}", error=True)
        raise typer.Exit(FAILED)


def _failures(fail_on: str | None) -> list[str]:
    names = [name.strip() for name in (fail_on or "").split(",") if name.strip()]
    for name in names:
        if name not in FAILURES:
            raise unknown("value of --fail-on", name, FAILURES)
    return names


def _words(file: Path) -> list[str]:
    try:
        return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error.reason
        raise InputError(f"--allow is '{file}', which cannot be read ({why}): give a text file in UTF-8.") from None


def _why_failed(result: Shortcuts, failures: list[str]) -> list[str]:
    """What --fail-on names and is there."""
    from scansnap.report.shortcuts_page import count_items, visible

    words = {
        "shortcut": ("shortcut", "that {are} not allowed", result.shortcuts),
        "unproven": (
            "unproven word",
            "that attention picks in the texts or in the population",
            [word for word in result.unproven if word.is_picked],
        ),
        "copies": (
            "word",
            "distinct only by copies of a text",
            [word for word in result.unproven if "copies" in word.reasons],
        ),
    }
    reasons = []
    for name in failures:
        if name == "bad-rows":
            if result.remarks.num_left_out:
                reasons.append(f"{count_items(result.remarks.num_left_out, 'row')} left out")
            continue
        kind, which, findings = words[name]
        named = [visible(finding.word) for finding in findings if not finding.allowed]
        if named:
            listed = ", ".join(named[:NAMED]) + ", ..." * (len(named) > NAMED)
            which = which.format(are="is" if len(named) == 1 else "are")
            reasons.append(f"{count_items(len(named), kind)} {which}: {listed}")
    return reasons


def _print(result: Shortcuts, top: int) -> None:
    from scansnap.report.shortcuts_page import ABOUT_SHORTCUTS, ABOUT_UNPROVEN, outcomes_in_words, summary

    for sentence in summary(result):
        echo(sentence)
    for title, findings in ((ABOUT_SHORTCUTS, result.shortcuts), (ABOUT_UNPROVEN, result.unproven)):
        echo(f"\n{title}{'' if findings else ': none'}")
        if findings and top:
            _table(findings[:top])
        if len(findings) > top:
            echo(f"  {f'and {len(findings) - top:,} more' if top else f'{len(findings):,}'} (--top, --table)")
    for sentence in outcomes_in_words(result):
        echo(sentence)
    for sentence in result.remarks.sentences():
        echo(sentence)


def _table(findings: tuple[Finding, ...]) -> None:
    from scansnap.report.shortcuts_page import visible

    names = [visible(finding.word) + (" (allowed)" if finding.allowed else "") for finding in findings]
    width = max(6, *(len(name) for name in names))
    label_width = max(5, *(len(visible(finding.label)) for finding in findings))
    is_trained = any(finding.gain is not None for finding in findings)
    attention = f"  {'gain':>5}  {'picked at':>9}" if is_trained else ""
    echo(
        f"  {'word':{width}}  {'label':{label_width}}  {'texts':>9}  {'share':>6}  {'usual':>6}  {'z':>6}  "
        f"{'corrected p':>11}  {'held out':>8}{attention}  why"
    )
    for name, finding in zip(names, findings, strict=True):
        held_out = "-" if finding.held_out_share is None else f"{finding.held_out_share:.0%}"
        gain = "-" if finding.gain is None else f"{finding.gain:.1f}"
        picked = "-" if finding.picked_at is None else f"{finding.picked_at:,.0f}"
        attention = f"  {gain:>5}  {picked:>9}" if is_trained else ""
        line = (
            f"  {name:{width}}  {visible(finding.label):{label_width}}  {finding.texts:9,}  {finding.share:6.0%}  "
            f"{finding.usual_share:6.0%}  {finding.z:6.1f}  {finding.corrected_p:11.2g}  {held_out:>8}{attention}  "
            f"{', '.join(finding.reasons)}"
        )
        echo(line.rstrip())
