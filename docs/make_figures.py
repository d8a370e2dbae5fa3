"""Make the paper's synthetic figures and those of studies beyond it, and write docs/figures.md, docs/beyond/figures.md.

python docs/make_figures.py           # makes every figure anew
python docs/make_figures.py --words   # writes docs/figures.md from docs/data/reproduction.json
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from stored_numbers import read_reproduction

from scansnap.figures import catalog, syn_medium
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.report.reproduce import NUM_SEEDS
from scansnap.report.reproduction import PageFigure

HERE = Path(__file__).parent
IMAGES = HERE / "images" / "figures"

OPENING = f"""# The paper's synthetic figures

Each figure is drawn from new runs, and each statement of the paper about it is tested. `scansnap figure 6` makes one,
and `--details` adds the tests behind each line. `scansnap reproduce` puts all of them on one page. Figures 6, 11 and 12
have {NUM_SEEDS} seeds per cell here; `scansnap figure` makes them with ten, as published.

Each statement stands with what was measured. It holds (✓), fails (✗: some comparison is significantly the other way
round) or is not settled (?: no comparison contradicts it, but not all are significant). Tests are one-sided t tests
over shared seeds at the 5% level, with Holm's correction where one statement has many comparisons.

We chose what the paper does not state: Figure 2's rates and stages; Figure 3's $\\eta_Y$ and classes; Figure 8's $M$
and rates; Figure 9's $K$ and $C_0$; the thresholds of Figures 11 and 12, whose range was fixed after looking at others.

"""

NOTES = {
    "11": """The appendix speaks of the "softmax value for every query token". That can be the softmax of $z_m$ over the
vocabulary or attention $c_n$. Both are shown. The first is meant: it belongs to a query, it starts at $1/M$, and its
descent rates follow the published entropies of Figure 6.

""",
}
"""What a page says below the setting of a figure."""

STUDIES = ("normalization", "optimizers", "finite_data", "heads", "layers", "phase_diagram")
"""The studies of which docs/beyond/figures.md shows the figure."""

BEYOND = """# Figures beyond the paper

These figures are about questions that the paper leaves open. Each comes from a program in `studies/`, and is made and
tested like [the paper's own](../figures.md). In a clone of scansnap, `scansnap figure heads --from studies/heads.py`
makes one. The pages in [the list of options](index.md) say what the results mean.

"""


def main() -> list[PageFigure]:
    """The figures of the paper that were written."""
    runs = syn_medium.make_runs(num_seeds=NUM_SEEDS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    results = [_make(catalog.recipe(name), runs) for name in catalog.SYNTHETIC]
    write(results)
    write_studies([_make(catalog.recipe_from(HERE.parent / "studies" / f"{name}.py", name)) for name in STUDIES])
    return results


def _make(recipe: FigureRecipe, runs: object = None) -> PageFigure:
    dataset = recipe.make(**({"runs": runs} if recipe.takes("runs") else {}))
    recipe.draw(dataset).savefig(IMAGES / f"figure_{recipe.name}.png", dpi=100)
    return PageFigure(recipe, recipe.trends(dataset), dataset.attrs["seconds"])


def write(results: Iterable[PageFigure]) -> None:
    """Write the page of the paper's figures."""
    text = OPENING
    for result in results:
        name = result.recipe.name
        setting = result.recipe.setting
        if name in ("11", "12"):
            setting = setting.replace(syn_medium.SETTING, "The runs of Figure 6")
        text += section(
            result, f"Figure {name}", f"Figure {name}", "images", f"{tex(setting)}.\n\n{NOTES.get(name, '')}"
        )
    (HERE / "figures.md").write_text(text.rstrip() + "\n")


def write_studies(results: Iterable[PageFigure]) -> None:
    """Write the page of figures beyond the paper."""
    text = BEYOND
    for result in results:
        recipe = result.recipe
        text += section(result, f"`studies/{recipe.name}.py`", recipe.title, "../images", f"{tex(recipe.setting)}.\n\n")
    (HERE / "beyond" / "figures.md").write_text(text.rstrip() + "\n")


def section(result: PageFigure, heading: str, alt: str, images: str, below: str) -> str:
    """A figure on a page: its statement, its picture, what stands below it, and its tests."""
    recipe = result.recipe
    picture = f"![{alt}]({images}/figures/figure_{recipe.name}.png)"
    lines = "".join(line(trend) for trend in result.trends)
    return f"## {heading}: {tex(recipe.title)}\n\n{tex(recipe.statement)}\n\n{picture}\n\n{below}{lines}\n"


def line(trend: Trend) -> str:
    """A statement with its verdict, and what was measured."""
    return f"- {trend.mark} {tex(trend.statement)} *{trend.measured_text}*, expected {tex(trend.expected)}.\n"


INDEXED = re.compile(r"(?<![A-Za-z$\\])([A-Za-zηχ]'?)_([A-Za-z0-9])(?![A-Za-z])")
POWER = re.compile("10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def tex(text: str) -> str:
    """The text of a figure with its symbols in TeX."""
    text = POWER.sub(lambda match: f"$10^{{{match[1].translate(DIGITS)}}}$", text.replace("₀", "_0"))
    text = INDEXED.sub(lambda match: f"${match[1]}_{match[2]}$", text).replace("h*", "$h^*$")
    return text.replace("$η", "$\\eta").replace("$χ", "$\\chi")


def table(trends: Iterable[Trend]) -> str:
    """A table of the tests, with a row for each statement."""
    head = "| statement | expected | measured | p | verdict |\n| --- | --- | ---: | ---: | --- |\n"
    return head + "".join(_row(trend) for trend in trends) + "\n"


def _row(trend: Trend) -> str:
    words = f"{trend.statement} *{trend.note}*".replace("|", "\\|")
    return f"| {words} | {trend.expected} | {trend.measured_text} | {trend.p_text} | {trend.verdict} |\n"


if __name__ == "__main__":
    if "--words" in sys.argv:
        write(read_reproduction().figures)
    else:
        main()
