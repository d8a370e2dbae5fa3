"""Make the synthetic figures and write docs/figures.md, docs/beyond/figures.md and their pictures.

python docs/make_figures.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from scansnap.figures import catalog, syn_medium_runs
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.report.reproduce import NUM_SEEDS
from scansnap.report.reproduction import PageFigure

HERE = Path(__file__).parent
IMAGES = HERE / "images" / "figures"

OPENING = f"""# The paper's synthetic figures

Every figure on this page is drawn from new runs, and each statement of the paper about it is tested. `scansnap figure
6` makes one figure and prints whether each statement holds; add `--details` for the numbers and tests behind it.
`scansnap reproduce` makes all of them on one page. This document is written by `docs/make_figures.py`. Figures 6, 11
and 12 have {NUM_SEEDS} seeds per cell here and on that page; `scansnap figure` makes them with ten, as published.

Tests are one-sided, over seeds that both sides share, at the level of 5%, corrected by Holm's method where one
statement has many comparisons. A statement *holds*, *fails* (some comparison is significantly the other way round), or
is *not settled* (none is, but not all are significant). We chose what the paper does not state: Figure 2's rates and
stages; Figure 3's η_Y and classes; Figure 8's M and rates; Figure 9's K and C₀; the thresholds of Figures 11 and 12,
where the range from 0.5/M to 2/M was fixed after looking at others. The appendix's "softmax value for every query
token" can be read as the softmax of z_m over the vocabulary or as attention c_n; both are shown, and the first is
meant: it is the one that belongs to a query, that starts at 1/M, around which the thresholds lie, and whose descent
rates follow the published entropies of Figure 6 (last rows of Figure 11), as the appendix says.

"""


BEYOND = """# Figures beyond the paper

These figures are about questions that the paper leaves open. They are drawn from new runs and tested like the paper's
own ([docs/figures.md](../figures.md) explains how). `scansnap figure heads` makes one, `scansnap reproduce` all of
them. This document is written by `docs/make_figures.py`; the pages listed in [index.md](index.md) say what the results
mean.

"""


def main() -> list[PageFigure]:
    """The figures that were written."""
    runs = syn_medium_runs.make(num_seeds=NUM_SEEDS)
    recipes = [catalog.recipe(name) for name in catalog.SYNTHETIC]
    numbered = [recipe for recipe in recipes if recipe.name in catalog.NUMBERED]
    beyond = [recipe for recipe in recipes if recipe.name in catalog.BEYOND]
    return write(HERE / "figures.md", OPENING, numbered, runs) + write(HERE / "beyond" / "figures.md", BEYOND, beyond)


def write(page: Path, text: str, recipes: Iterable[FigureRecipe], runs: Any = None) -> list[PageFigure]:
    """Write the figures with their tests below the opening."""
    results = []
    IMAGES.mkdir(parents=True, exist_ok=True)
    images = "../" * (len(page.relative_to(HERE).parts) - 1) + "images/figures"
    for recipe in recipes:
        name, title = recipe.name, recipe.title
        options: dict[str, Any] = {"runs": runs} if recipe.takes("runs") else {}
        dataset = recipe.make(**options)
        recipe.draw(dataset).savefig(IMAGES / f"figure_{name}.png", dpi=100)
        beyond = name in catalog.BEYOND
        heading, words = (f"`scansnap figure {name}`", title) if beyond else (f"Figure {name}", f"Figure {name}")
        text += f"## {heading}: {title}\n\n{recipe.statement}\n\n"
        text += f"![{words}]({images}/figure_{name}.png)\n\n{recipe.setting}.\n\n"
        results.append(PageFigure(recipe, recipe.trends(dataset), dataset.attrs["seconds"]))
        text += table(results[-1].trends)
    page.write_text(text)
    return results


def table(trends: Iterable[Trend]) -> str:
    """A table of the tests, with a row for each statement."""
    head = "| statement | expected | measured | p | verdict |\n| --- | --- | ---: | ---: | --- |\n"
    return head + "".join(_row(trend) for trend in trends) + "\n"


def _row(trend: Trend) -> str:
    words = f"{trend.statement} *{trend.note}*".replace("|", "\\|")
    return f"| {words} | {trend.expected} | {trend.measured_text} | {trend.p_text} | {trend.verdict} |\n"


if __name__ == "__main__":
    main()
