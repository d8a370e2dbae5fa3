"""Make the synthetic figures and write docs/figures.md, docs/beyond/figures.md and their pictures.

python docs/make_figures.py           # makes every figure anew
python docs/make_figures.py --words   # writes the pages from docs/data/reproduction.json
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from scansnap.figures import catalog, syn_medium
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.report.reproduce import NUM_SEEDS
from scansnap.report.reproduction import PageFigure, read_reproduction

HERE = Path(__file__).parent
IMAGES = HERE / "images" / "figures"

OPENING = f"""# The paper's synthetic figures

Each figure is drawn from new runs, and each statement of the paper about it is tested. `scansnap figure 6` makes one,
and `--details` adds the tests behind each line. `scansnap reproduce` puts all of them on one page. Figures 6, 11 and 12
have {NUM_SEEDS} seeds per cell here; `scansnap figure` makes them with ten, as published.

Each statement stands with what was measured. It holds (✓), fails (✗: some comparison is significantly the other way
round) or is not settled (?: no comparison contradicts it, but not all are significant). Tests are one-sided t tests
over shared seeds at the 5% level, with Holm's correction where one statement has many comparisons.

We chose what the paper does not state: Figure 2's rates and stages; X
rates; Figure 9's $K$ and $C_0$; the thresholds of Figures 11 and 12, whose range was fixed after looking at others.

"""

NOTES = {
    "11": """The appendix speaks of the "softmax value for every query token". That can be the softmax of $z_m$ over the
vocabulary or attention $c_n$. Both are shown. The first is meant: it belongs to a query, it starts at $1/M$, and its
descent rates follow the published entropies of Figure 6.

""",
}
"""What a page says below the setting of a figure."""

BEYOND = """# Figures beyond the paper

These figures are about questions that the paper leaves open. They are made and tested like [the paper's
own](../figures.md). `scansnap figure heads` makes one. The pages in [the list of options](index.md) say what the
results mean.

"""


def main() -> list[PageFigure]:
    """The figures that were written."""
    runs = syn_medium.make_runs(num_seeds=NUM_SEEDS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    results = [_make(catalog.recipe(name), runs) for name in catalog.SYNTHETIC]
    write(results)
    return results


def _make(recipe: FigureRecipe, runs: object) -> PageFigure:
    dataset = recipe.make(**({"runs": runs} if recipe.takes("runs") else {}))
    recipe.draw(dataset).savefig(IMAGES / f"figure_{recipe.name}.png", dpi=100)
    return PageFigure(recipe, recipe.trends(dataset), dataset.attrs["seconds"])


def write(results: Iterable[PageFigure]) -> None:
    """Write both pages."""
    pages = {HERE / "figures.md": OPENING, HERE / "beyond" / "figures.md": BEYOND}
    paper, beyond = pages
    for result in results:
        name, title = result.recipe.name, result.recipe.title
        if name in catalog.BEYOND:
            page, heading, alt, images = beyond, f"`scansnap figure {name}`", title, "../images/figures"
        else:
            page, heading, alt, images = paper, f"Figure {name}", f"Figure {name}", "images/figures"
        pages[page] += f"## {heading}: {tex(title)}\n\n{tex(result.recipe.statement)}\n\n"
        setting = result.recipe.setting
        if name in ("11", "12"):
            setting = setting.replace(syn_medium.SETTING, "The runs of Figure 6")
        pages[page] += f"![{alt}]({images}/figure_{name}.png)\n\n{tex(setting)}.\n\n{NOTES.get(name, '')}"
        pages[page] += "".join(line(trend) for trend in result.trends) + "\n"
    for page, text in pages.items():
        page.write_text(text.rstrip() + "\n")


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
        write(read_reproduction(HERE / "data" / "reproduction.json").figures)
    else:
        main()
