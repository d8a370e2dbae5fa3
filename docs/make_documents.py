"""Check every claim and make every figure once, and store what was measured and drawn.

python docs/make_documents.py

The numbers go into docs/data/reproduction.json, from which `make docs` fills pages and makes that of the reproduction.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import make_figures
import make_theory
from stored_numbers import store_reproduction

from scansnap.claims.claim import Verdict
from scansnap.report.claims_page import MARKS, count_verdict, short_name
from scansnap.report.reproduction import Headline, Reproduction


def main() -> None:
    began = time.perf_counter()
    verdicts = make_theory.main()
    figures = make_figures.main()
    reproduction = Reproduction(figures, verdicts, time.perf_counter() - began, "make documents")
    store_reproduction(reproduction)


def summary(opening: Headline) -> str:
    """The headline in Markdown, with its pictures."""
    places = make_theory.claim_places()

    def linked(verdicts: Sequence[Verdict]) -> str:
        return ", ".join(f"[{short_name(verdict.claim)}](theory/{places[verdict.id]})" for verdict in verdicts)

    def listed(groups: Mapping[str, Sequence[Verdict]], words: Callable[[str, int], str]) -> str:
        return "; ".join(f"{words(name, len(group))}: {linked(group)}" for name, group in groups.items())

    doubtful = ", ".join(f"{each.label} ({each.holding} of {len(each.trends)} hold)" for each in opening.doubtful)
    failing = ", ".join(f"{name}: {len(group)}" for name, group in opening.failing.items())
    corrected = f"{opening.mended} of {opening.claims['fails']} are corrected, and the correction holds."
    lines = [
        *(f"**{question}** {make_figures.tex(answer)}\n" for question, answer in opening.answers),
        f"By new, exact runs: {opening.reproduced}.",
        "",
        f"- **Statements:** {_counts(opening.claims)}. **Tests of figures:** {_counts(opening.trends)}.",
        f"- **Theorems and corollaries.** {listed(opening.theorems, count_verdict)}.",
        f"- **Fails as printed** ([which](theory/index.md#claims)). {failing}. {corrected}",
        f"- **Figures that do not show all they are said to show** (tests of each). {doubtful}.",
        "",
    ]
    for highlight in opening.highlights:
        assert highlight.figure is not None  # all figures were made
        recipe = highlight.figure.recipe
        said = " ".join(
            f"{short_name(verdict.claim)}: {plain} **({verdict.verdict})**" for verdict, plain in highlight.said
        )
        picture = f"![{highlight.alt_text}](images/figures/figure_{recipe.name}.png)"
        lines += [picture, "", f"*{highlight.title}.* {said}", ""]
    return "\n".join(lines)


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(count_verdict(word, numbers[word]) for word in MARKS if word in numbers)


if __name__ == "__main__":
    main()
