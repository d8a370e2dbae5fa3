"""What `shortcuts` returns: one finding for each word that looks distinct, and everything they rest on."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from scansnap.runtime.errors import InputError, StoreError
from scansnap.shortcuts.options import ShortcutOptions
from scansnap.shortcuts.rows import Remarks

Verdict = Literal["shortcut", "unproven"]
Reason = Literal["rare", "chance", "copies", "unstable", "gone"]

REASONS: dict[Reason, str] = {
    "rare": "in too few texts to be beyond chance, however pure",
    "chance": "no more distinct than some of so many words are by chance",
    "copies": "distinct only if copies of a text count as so many texts",
    "unstable": "not distinct in some resamples of the texts",
    "gone": "not distinct in the held-out rows",
}
"""Why a word that looks distinct is called unproven."""

TABLES = (".csv", ".parquet", ".json")


@dataclass(frozen=True)
class Finding:
    """A word that looks distinct for a label.

    >>> found = ss.shortcuts("example", text="review", label="sentiment", attention=False)
    >>> found.findings[0].share > found.findings[0].usual_share
    True
    """

    word: str
    """The word."""
    label: str
    """The label that it tells."""
    verdict: Verdict
    """Whether it is a shortcut, or unproven."""
    reasons: tuple[Reason, ...]
    """Why it is unproven; none for a shortcut."""
    allowed: bool
    """Whether the word may tell the label."""
    texts: int
    """c, the texts with the word."""
    different_texts: int
    """The different ones among them: copies count once for each label."""
    texts_with_label: int
    """a, those that have the label."""
    share: float
    """a/c, the purity."""
    usual_share: float
    """n_k/N."""
    z: float
    """How many standard deviations the share is from the usual one."""
    p: float
    """The chance of such a share if the word told nothing."""
    corrected_p: float
    """The chance that any word at all is this distinct for its label, bounded."""
    stability: float
    """The share of resamples in which the word speaks for its label."""
    held_out_texts: int
    """Texts with the word that were held out."""
    held_out_share: float | None
    """The share of its label among these."""
    rows_to_tell: float | None
    """Rows in which its share would be beyond chance, if it is not in these."""
    gain: float | None
    """The most attention that training on the texts gives it, over even attention; None if it was not read."""
    picked_at: float | None
    """The first recorded update at which that is at least 2; None if it never is."""
    population_gain: float | None
    """The same for training on endless texts of the estimated classes."""
    population_picked_at: float | None
    """The first recorded update at which that is at least 2."""

    @property
    def is_picked(self) -> bool:
        """Whether attention picks it, in the texts or in the population."""
        return self.picked_at is not None or self.population_picked_at is not None

    def said(self) -> str:
        """Why it is unproven, in words."""
        return "; ".join(REASONS[reason] for reason in self.reasons)


@dataclass(frozen=True)
class Control:
    """How many words look distinct, and how many do after the labels were shuffled."""

    looking: int
    looking_shuffled: int
    beyond_chance: int
    beyond_chance_shuffled: int


@dataclass(frozen=True)
class Outcome:
    """What a model has become by the end of training, on held-out texts."""

    name: str
    texts: int
    loss: float
    accuracy: float
    accuracy_error: float  # standard error: √(a (1 − a)/n) on n held-out texts
    on_shortcuts: float  # attention
    on_unproven: float


@dataclass(frozen=True)
class Curves:
    """Gains of some words in the course of training."""

    words: tuple[str, ...]
    updates: tuple[float, ...]
    gains: tuple[tuple[float | None, ...], ...]  # by word
    times: tuple[float, ...]
    population_gains: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Shortcuts:
    """Shortcuts in labeled text.

    >>> found = ss.shortcuts("example", text="review", label="sentiment", attention=False)
    >>> found.num_words
    423
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
    """Different texts in these rows."""
    num_ambiguous: int
    """Different texts that have several labels."""
    num_words: int
    """Different words."""
    num_tested: int
    """Those in enough texts to be tested."""
    num_tests: int
    """Pairs of word and label that could be beyond chance: what p is corrected for."""
    control: Control
    """What the same tests find with the labels shuffled."""
    findings: tuple[Finding, ...]
    """Shortcuts first, then by z."""
    remarks: Remarks
    """Rows that could not be used, and why."""
    read_share: float | None
    """The share of all words in the texts that the model reads."""
    curves: Curves | None
    """Attention on the words that it picks, over training."""
    outcomes: tuple[Outcome, ...]
    """What training comes to on held-out texts: as it is, with a prior, with fewer texts."""
    chance_share: dict[int, float]
    """By number of rows: the share of a text's words that look distinct by chance alone (`theory.spurious_share`)."""
    options: ShortcutOptions
    """The options of the call."""

    @property
    def num_rows(self) -> int:
        """Rows that were used."""
        return sum(self.labels.values())

    @property
    def shortcuts(self) -> tuple[Finding, ...]:
        """Words that tell a label beyond chance."""
        return tuple(finding for finding in self.findings if finding.verdict == "shortcut")

    @property
    def unproven(self) -> tuple[Finding, ...]:
        """Words that seem to, and may do so by chance."""
        return tuple(finding for finding in self.findings if finding.verdict == "unproven")

    def plain(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        more = {"remarks": self.remarks.plain(), "num_rows": self.num_rows, "options": self.options.to_dict()}
        return _plain({**content, **more})

    def write_table(self, path: str | Path) -> None:
        """Write the findings as CSV, Parquet or JSON."""
        path = Path(path)
        suffix = path.suffix.lower()
        check_table(path)
        rows = [{**_plain(finding), "reasons": " ".join(finding.reasons)} for finding in self.findings]
        names = [field.name for field in fields(Finding)]
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if suffix == ".json":
                path.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            elif suffix == ".csv":
                with path.open("w", newline="", encoding="utf-8") as file:
                    table = csv.DictWriter(file, names)
                    table.writeheader()
                    table.writerows(rows)
            else:
                _write_parquet(path, rows, names)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror or error}.") from None


def check_table(path: Path) -> None:
    """Refuse a file that is no table, before the work begins."""
    if path.suffix.lower() not in TABLES or path.is_dir():
        raise InputError(f"the table is '{path}': give a file whose name ends in {', '.join(TABLES)}.")


def _write_parquet(path: Path, rows: list[dict[str, Any]], names: list[str]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError(
            f"{path} needs pyarrow, which is not installed: pip install 'scansnap[text]', or write a .csv file."
        ) from None
    numbers = {"bool": pyarrow.bool_(), "int": pyarrow.int64(), "float": pyarrow.float64()}
    schema = pyarrow.schema(
        [
            (field.name, numbers.get(str(field.type).removesuffix(" | None"), pyarrow.string()))
            for field in fields(Finding)
        ]
    )
    columns = {name: [row[name] for row in rows] for name in names}
    parquet.write_table(pyarrow.table(columns, schema=schema), path)


def _plain(value: Any) -> Any:
    """The value with NaN and infinity replaced by null, for JSON."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return _plain(asdict(value)) if hasattr(value, "__dataclass_fields__") else value
