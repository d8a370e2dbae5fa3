"""What `shortcuts` returns: one finding for each feature that looks distinct, and everything they rest on."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scansnap.corpus.sources import RowReport
from scansnap.runtime.errors import InputError, StoreError
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.storage.files import TABLE_MARK, atomic_write, check_replaceable

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["shortcut", "unproven"]
Reason = Literal["rare", "chance", "copies", "explained"]
Test = Literal["holds", "not confirmed", "not seen"]

REASONS: dict[Reason, str] = {
    "rare": "in too few texts to be beyond chance, however pure",
    "chance": "no more distinct than some of so many features are by chance",
    "copies": "distinct only if copies of a text count as so many texts",
    "explained": "distinct only through another feature",
}
"""Why a feature that looks distinct is called unproven."""

TABLES = (".csv", ".parquet", ".json")

EMPTY_JSON = "[\n\n]"
"""A JSON table without findings, which has no row for the mark of this package's tables."""


@dataclass(frozen=True)
class Finding:
    """A feature that looks distinct for a label.

    >>> found = ss.shortcuts("example", text="review", label="sentiment")
    >>> found.findings[0].share > found.findings[0].usual_share
    True
    """

    kind: str
    """What sort of feature it is: a word, a pair of words, a position, length, casing, ..."""
    feature: str
    """The feature."""
    label: str
    """The label that it predicts."""
    verdict: Verdict
    """Whether it is a shortcut, or unproven."""
    reasons: tuple[Reason, ...]
    """Why it is unproven; none for a shortcut."""
    explained_by: str | None
    """The feature through which it is distinct."""
    accepted: bool
    """Whether the baseline accepts it."""
    texts: int
    """c, the different texts with the feature."""
    texts_with_label: int
    """a, those that have the label."""
    share: float
    """a/c, the purity."""
    usual_share: float
    """n_k/N."""
    z: float
    """How many standard deviations the share is from the usual one."""
    p: float
    """The chance of such a share if the feature told nothing."""
    corrected_p: float
    """The chance that any feature at all is this distinct for its label, bounded."""
    test: Test | None
    """Whether it holds in the second source, without copies of the first; None without a second source."""
    test_texts: int
    """Texts with the feature there."""
    test_share: float | None
    """The share of its label among these."""
    copies: int
    """Rows that are copies of the text with the feature and the label that has most."""
    examples: tuple[str, ...]
    """Where rows with the feature and the label are, counted from 1, and their text around the feature."""
    gain: float | None
    """The most attention that training gives the word, over even attention; None if it was not read."""
    picked_at: int | None
    """The first recorded update at which that is at least 2; None if it never is."""

    @property
    def name(self) -> str:
        """The feature with its kind, unless it is a word."""
        return self.feature if self.kind == "word" else f"{self.kind}: {self.feature}"

    def explain(self) -> str:
        """Why it is unproven, in words."""
        by = f" ({self.explained_by})" if self.explained_by else ""
        return "; ".join(f"{REASONS[reason]}{by if reason == 'explained' else ''}" for reason in self.reasons)


@dataclass(frozen=True)
class Control:
    """How many features look distinct, and how many do after the labels were shuffled."""

    looking: int
    looking_shuffled: int
    beyond_chance: int
    beyond_chance_shuffled: int


@dataclass(frozen=True)
class SecondSource:
    """What a second source, such as a test set, shares with the first."""

    source: str
    rows: int
    copied_texts: int
    """Different texts of it that are copies or near copies of texts of the first source."""
    texts: int
    """Its different texts."""
    examples: tuple[str, ...]
    report: RowReport


@dataclass(frozen=True, repr=False)
class Shortcuts:
    """Shortcuts in labeled text.

    >>> found = ss.shortcuts("example", text="review", label="sentiment")
    >>> found.num_texts
    4001
    """

    source: str
    """What was read."""
    text: str
    """The column of text."""
    label: str
    """The column of labels."""
    labels: dict[str, int]
    """Rows of each label."""
    num_texts: int
    """Different texts, but for case and white space; of a large source, those that were drawn."""
    num_tested_texts: int
    """What is left of them if near copies with the same label count once."""
    num_ambiguous: int
    """Groups of copies that have several labels."""
    drawn_share: float
    """The share of the rows whose texts were drawn: 1 if all were tested."""
    num_words: int
    """Different words."""
    unspaced_share: float
    """The share of the tested words that are characters of scripts without spaces between words."""
    num_features: dict[str, int]
    """Features in enough texts to be tested, by kind."""
    num_pairs: int
    """Pairs of adjacent words in enough texts, also those beyond the budget."""
    num_tests: int
    """Pairs of feature and label that could be beyond chance: what p is corrected for."""
    control: Control
    """What the same tests find with the labels shuffled."""
    findings: tuple[Finding, ...]
    """Shortcuts first, then by z."""
    report: RowReport
    """Rows that could not be used, and why."""
    files: str | None
    """How many files were read and skipped."""
    second: SecondSource | None
    """What a second source shares with the first."""
    options: ShortcutOptions
    """The options of the call."""

    def __repr__(self) -> str:
        numbers = f"{len(self.shortcuts):,} shortcuts, {len(self.unproven):,} unproven, of {self.num_rows:,} rows"
        return f"<shortcuts: {numbers}; .to_pandas(), .write_table()>"

    @property
    def num_rows(self) -> int:
        """Rows that were used."""
        return sum(self.labels.values())

    @property
    def shortcuts(self) -> tuple[Finding, ...]:
        """Features that predict a label beyond chance."""
        return tuple(finding for finding in self.findings if finding.verdict == "shortcut")

    @property
    def unproven(self) -> tuple[Finding, ...]:
        """Features that seem to, and may do so by chance, by copies or through others."""
        return tuple(finding for finding in self.findings if finding.verdict == "unproven")

    def accept_all(self) -> Shortcuts:
        """The same result with every shortcut accepted."""
        findings = (replace(finding, accepted=finding.verdict == "shortcut") for finding in self.findings)
        return replace(self, findings=tuple(findings))

    def plain(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        return {**asdict(self), "num_rows": self.num_rows, "options": self.options.to_dict()}

    def to_pandas(self) -> pd.DataFrame:
        """The findings as a table, one row each."""
        import pandas as pd

        names = [field.name for field in fields(Finding)]
        rows = [
            {**asdict(finding), "reasons": " ".join(finding.reasons), "examples": " | ".join(finding.examples)}
            for finding in self.findings
        ]
        return pd.DataFrame(rows, columns=names)

    def write_table(self, path: str | Path) -> None:
        """Write the findings as CSV, Parquet or JSON; a file that this package did not write is not replaced."""
        path = Path(path)
        check_table(path)
        table = self.to_pandas()
        table.insert(0, TABLE_MARK, 1)
        if path.suffix.lower() == ".parquet":
            data = table.to_parquet(index=False)
        elif path.suffix.lower() == ".csv":
            data = table.to_csv(index=False).encode()
        else:
            records = table.to_json(orient="records", force_ascii=False, indent=1)
            data = (records if len(table) else EMPTY_JSON).encode()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, data)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}.") from None


def check_table(path: Path) -> None:
    """Refuse a file that is no table, or that this package did not write, before the work begins."""
    if path.suffix.lower() not in TABLES or path.is_dir():
        raise InputError(f"the table is '{path}': give a file whose name ends in {', '.join(TABLES)}.")
    is_empty = path.is_file() and path.stat().st_size == len(EMPTY_JSON) and path.read_text() == EMPTY_JSON
    if not is_empty:
        check_replaceable(path)


def read_baseline(path: str | Path) -> list[tuple[str, str, str]]:
    """The findings that a baseline file accepts, as (kind, feature, label)."""
    path = Path(path)
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))["accepted"]
        return [(entry["kind"], entry["feature"], entry["label"]) for entry in entries]
    except OSError as error:
        raise InputError(
            f"the baseline is '{path}', which cannot be read ({error.strerror}): write it with --update-baseline."
        ) from None
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"the baseline is '{path}', which is no baseline: give a TOML file with [[accepted]] entries of kind, "
            "feature and label."
        ) from None


def write_baseline(path: str | Path, result: Shortcuts) -> None:
    """Write every shortcut of a result to a baseline file."""
    import tomli_w

    entries = [
        {"kind": finding.kind, "feature": finding.feature, "label": finding.label} for finding in result.shortcuts
    ]
    Path(path).write_text(tomli_w.dumps({"accepted": entries}), encoding="utf-8")
