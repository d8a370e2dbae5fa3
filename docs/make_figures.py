"""Make the paper's synthetic figures and those of studies beyond it.

python docs/make_figures.py

When the site is built, `<!-- found: figures -->` on docs/figures.md becomes their sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from scansnap.figures import catalog, syn_medium
from scansnap.figures.recipe import FigureRecipe, Trend
from scansnap.report.reproduce import NUM_SEEDS
from scansnap.report.reproduction import PageFigure

HERE = Path(__file__).parent
IMAGES = HERE / "images" / "figures"

NOTES = {
    "3": """The tests are of the published form. Under true SGD the order of the growth factors is [the
opposite](theory/rates.md#section-6-c-the-order-of-the-decoders-rates) at these rates.

""",
    "9": """The tests are of the published form, which [does not start at
zero](theory/phases.md#theorem-4-scan-and-snap).

""",
    "11": """The appendix speaks of the "softmax value for every query token": the softmax of $z_m$ over the vocabulary
or attention $c_n$. Both are shown. The tests are of the first, [which is
meant](#which-softmax-figures-11-and-12-use).

""",
}
"""What a page says below the setting of a figure."""

STUDIES = ("normalization", "optimizers", "finite_data", "heads", "layers", "phase_diagram")
"""The studies whose figures are on pages of docs/beyond."""


def main() -> list[PageFigure]:
    """The figures of the paper that were written."""
    runs = syn_medium.make_runs(num_seeds=NUM_SEEDS)
    IMAGES.mkdir(parents=True, exist_ok=True)
    results = [_make(catalog.recipe(name), runs) for name in catalog.SYNTHETIC]
    for name in STUDIES:
        _make(catalog.recipe_from(HERE.parent / "studies" / f"{name}.py", name))
    return results


def _make(recipe: FigureRecipe, runs: object = None) -> PageFigure:
    dataset = recipe.make(**({"runs": runs} if recipe.takes("runs") else {}))
    recipe.draw(dataset).savefig(IMAGES / f"figure_{recipe.name}.png", dpi=100)
    return PageFigure(recipe, recipe.trends(dataset), dataset.attrs["seconds"])


def found(results: Iterable[PageFigure]) -> str:
    """The sections of the paper's figures."""
    text = ""
    for result in results:
        name = result.recipe.name
        setting = result.recipe.setting
        if name in ("11", "12"):
            setting = setting.replace(syn_medium.SETTING, "The runs of Figure 6")
        lines = "".join(line(trend) for trend in result.trends)
        picture = f"![Figure {name}](images/figures/figure_{name}.png)"
        text += f"## Figure {name}: {tex(result.recipe.title)}\n\n{tex(result.recipe.statement)}\n\n{picture}\n\n"
        text += f"{tex(setting)}.\n\n{NOTES.get(name, '')}{lines}\n"
    return text.rstrip()


def line(trend: Trend) -> str:
    """A statement with its verdict, and what was measured."""
    return f"- {trend.mark} {tex(trend.statement)} *{trend.measured_text}*, expected {tex(trend.expected)}.\n"


SYMBOL = r"(?:\(Y, Z\)|(?:[A-Za-zηχ]'?_[A-Za-z0-9]|h\*|[hKMTNWYZ])(?![A-Za-z])(?:\(t_0\))?)"
NUMBER = r"[0-9](?:[0-9.,]*[0-9])?"
FORMULA = re.compile(rf"(?<![\w$\\])(?:±?{NUMBER}[ /]?)?√?{SYMBOL}(?:(?:/| = )(?:{SYMBOL}|{NUMBER}))*")
"""A symbol with what stands before and after it, as in `2 η_Y/M` and `η_Y = η_Z = 1`."""

SIGNS = {"η": r"\eta", "χ": r"\chi", "±": r"\pm", "√": r"\sqrt ", "*": "^*", "0,0": "0{,}0"}
POWER = re.compile("10([⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789")


def tex(text: str) -> str:
    """The text of a figure with its formulas in TeX."""
    text = FORMULA.sub(lambda match: f"${_commands(match[0])}$", text.replace("₀", "_0"))
    return POWER.sub(lambda match: f"$10^{{{match[1].translate(DIGITS)}}}$", text)


def _commands(formula: str) -> str:
    for sign, command in SIGNS.items():
        formula = formula.replace(sign, command)
    return formula


if __name__ == "__main__":
    main()
