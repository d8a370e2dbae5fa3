"""`scansnap shortcuts`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from scansnap.cli import common
from scansnap.cli.console import echo
from scansnap.cli.flags import Flag, read_flags, with_flags
from scansnap.runtime.errors import InputError, count_items, unknown
from scansnap.shortcuts.options import ShortcutOptions

if TYPE_CHECKING:
    from scansnap.shortcuts.result import Finding, Shortcuts

FAILURES = {
    "shortcut": "features that predict a label beyond chance and are not in the baseline",
    "copies": "features that do so only by copies of a text",
    "test-copies": "texts of --test that are copies of texts of the source",
    "bad-rows": "rows that are left out",
}
"""What --fail-on names."""

NAMED = 10
"""Features that the reason of a failure names."""

FAILED = 1
"""The exit status of a command that found what --fail-on names."""


@with_flags(ShortcutOptions, defaults=True)
def command(
    source: Annotated[
        str,
        typer.Argument(
            help="A file (.csv, .tsv, .jsonl, .parquet, also .gz and .zst), a folder of them, or example, which is "
            "made up."
        ),
    ],
    text: Annotated[str, typer.Option(help="The column of texts; review.body leads into nested objects.")] = "text",
    label: Annotated[str, typer.Option(help="The column of labels.")] = "label",
    test: Annotated[
        str | None,
        typer.Option(help="A second file, such as a test set: which texts are copies, and which findings hold."),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="How many findings to print.")] = 10,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Also print what looks distinct but is not proven.")
    ] = False,
    page: Annotated[Path | None, typer.Option(help="Write everything to one page (.html).")] = None,
    table: Annotated[
        Path | None, typer.Option(help="Write everything that looks distinct (.csv, .parquet, .json).")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Findings that are accepted (.toml): --fail-on ignores them.")
    ] = None,
    update_baseline: Annotated[
        bool, typer.Option("--update-baseline", help="Write the present findings to the baseline.")
    ] = False,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help=f"End with status {FAILED} if there are any of these, several separated by commas: "
            f"{'; '.join(f'{name} ({meaning})' for name, meaning in FAILURES.items())}.",
        ),
    ] = None,
    json: Annotated[bool, common.JSON_OPTION] = False,
    **flags: Flag,
) -> None:
    """Find what gives away the label of a text: words, pairs, positions, length, casing, white space, patterns.

    Copies and near copies of a text count once. Rows that cannot be used are counted and reported. The status is 0, or
    1 if --fail-on applies, or 2 if the command cannot be carried out.
    """
    from scansnap.shortcuts.find import shortcuts
    from scansnap.shortcuts.result import check_table, read_baseline, write_baseline

    options = read_flags(flags, ShortcutOptions)
    failures = _failures(fail_on)
    if "test-copies" in failures and test is None:
        raise InputError("--fail-on test-copies needs --test: name the test set.")
    for name, output in (("--table", table), ("--page", page), ("--baseline", baseline)):
        sources = [Path(given) for given in (source, test) if given is not None and Path(given).exists()]
        if output is not None and output.exists() and any(output.samefile(given) for given in sources):
            raise InputError(f"{name} is '{output}', which is the source: give another name.")
    if table is not None:
        check_table(table)
    if page is not None:
        from scansnap.report.html import check_page

        check_page(page)
    if update_baseline and baseline is None:
        raise InputError("--update-baseline is given without --baseline: name the file.")
    accepted = read_baseline(baseline) if baseline is not None and (baseline.exists() or not update_baseline) else []
    result = shortcuts(
        source, text=text, label=label, test=test, accept=accepted, progress=False if json else None, **options
    )
    if update_baseline and baseline is not None:
        write_baseline(baseline, result)
        result = result.accept_all()
    if table is not None:
        result.write_table(table)
    if page is not None:
        from scansnap.report.shortcuts_page import write_shortcuts_page

        write_shortcuts_page(page, result)
    reasons = _why_failed(result, failures)
    if json:
        common.echo_json({**result.plain(), "failed_on": reasons})
    else:
        _print(result, top, unproven)
        for kind, path in (("page", page), ("table", table), ("baseline", baseline)):
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


def _why_failed(result: Shortcuts, failures: list[str]) -> list[str]:
    """What --fail-on names and is there."""
    from scansnap.report.shortcuts_page import visible

    new = [finding for finding in result.findings if not finding.accepted]
    copied = sorted((f for f in new if "copies" in f.reasons), key=lambda f: -f.copies)
    named = {
        "shortcut": ("shortcut", "not in the baseline", [f for f in new if f.verdict == "shortcut"]),
        "copies": ("feature", "distinct only by copies of a text", copied),
    }
    reasons = []
    for name in failures:
        if name == "bad-rows" and result.report.num_left_out:
            reasons.append(f"{count_items(result.report.num_left_out, 'row')} left out")
        elif name == "test-copies" and result.second is not None and result.second.copied_texts:
            reasons.append(f"{count_items(result.second.copied_texts, 'text')} of {result.second.source} copied")
        elif name in named and named[name][2]:
            kind, which, findings = named[name]
            listed = ", ".join(visible(finding.name) for finding in findings[:NAMED]) + ", ..." * (
                len(findings) > NAMED
            )
            first = findings[0]
            text = f" (the first: {first.copies:,} copies of {visible(first.examples[0], 80)})" * (name == "copies")
            reasons.append(f"{count_items(len(findings), kind)} {which}: {listed}{text}")
    return reasons


def _print(result: Shortcuts, top: int, unproven: bool) -> None:
    from scansnap.report.shortcuts_page import summary, visible

    for sentence in summary(result):
        echo(sentence)
    shown = [("Shortcuts", result.shortcuts)] + ([("Unproven", result.unproven)] if unproven else [])
    for title, findings in shown:
        echo(f"\n{title}{'' if findings else ': none'}")
        if findings and top:
            _table(findings[:top], has_test=result.second is not None)
        if len(findings) > top:
            echo(f"  {f'and {len(findings) - top:,} more' if top else f'{len(findings):,}'} (--top, --table)")
    for finding in result.shortcuts[:top]:
        for example in finding.examples[:1]:
            echo(f"  {visible(finding.name)}, as in {visible(example, 100)}")
    if not unproven:
        more = "more are explained by these, rare, or due to chance or copies (--unproven, --table)"
        echo(f"\n{len(result.unproven):,} {more}")
    for sentence in result.report.sentences():
        echo(sentence)


def _table(findings: tuple[Finding, ...], *, has_test: bool) -> None:
    from scansnap.report.shortcuts_page import visible

    names = [visible(finding.name) + (" (accepted)" if finding.accepted else "") for finding in findings]
    width = max(8, *(len(name) for name in names))
    label_width = max(5, *(len(visible(finding.label)) for finding in findings))
    is_trained = any(finding.gain is not None for finding in findings)
    more = f"  {'test':>14}" * has_test + f"  {'gain':>5}  {'picked at':>9}" * is_trained
    echo(
        f"  {'feature':{width}}  {'label':{label_width}}  {'texts':>9}  {'share':>6}  {'usual':>6}  {'z':>6}  "
        f"{'corrected p':>11}{more}{'  why' * any(finding.reasons for finding in findings)}"
    )
    for name, finding in zip(names, findings, strict=True):
        gain = "-" if finding.gain is None else f"{finding.gain:.1f}"
        picked = "-" if finding.picked_at is None else f"{finding.picked_at:,.0f}"
        more = f"  {finding.test!s:>14}" * has_test + f"  {gain:>5}  {picked:>9}" * is_trained
        why = ", ".join(finding.reasons) + (f" by {visible(finding.explained_by)}" if finding.explained_by else "")
        line = (
            f"  {name:{width}}  {visible(finding.label):{label_width}}  {finding.texts:9,}  {finding.share:6.0%}  "
            f"{finding.usual_share:6.0%}  {finding.z:6.1f}  {finding.corrected_p:11.2g}{more}  {why}"
        )
        echo(line.rstrip())
