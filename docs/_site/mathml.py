"""Mathematics as MathML, which browsers draw by themselves: nothing is loaded, and screen readers can read it."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

NAMESPACE = "http://www.w3.org/1998/Math/MathML"
APPLIED = "\u2061"
"""The sign between a function and its argument, which browsers draw with no width."""
THIN = {"width": "0.17em"}


def typeset(formula: str, *, as_block: bool = False) -> str:
    """MathML with the spaces and accents that TeX would give it."""
    text = tex2mathml(formula, as_block=as_block).replace("&ApplyFunction;", APPLIED)
    root = ElementTree.fromstring(text.replace(f' xmlns="{NAMESPACE}"', ""))
    for element in list(root.iter()):
        element.tail = None
        if element.tag == "munderover" and element[2].text in ("~", "˙", "¯", "^"):
            _lower_the_index(element)
        elif element.tag == "mo" and element.text in ("/", "|", "‖"):
            element.attrib |= {"stretchy": "false", "lspace": "0", "rspace": "0"}
        _space_functions(element)
    root.set("xmlns", NAMESPACE)
    return ElementTree.tostring(root, encoding="unicode")


def _lower_the_index(accented: ElementTree.Element) -> None:
    """A letter with an accent and an index: the index stands beside it, not under it."""
    letter, index, accent = accented
    accented.tag = "msub"
    accented[:] = [ElementTree.Element("mover", accent="true"), index]
    accented[0].extend([letter, accent])


def _space_functions(row: ElementTree.Element) -> None:
    """Put thin spaces before `ln` and its like, and between it and an argument without parentheses."""
    parts = list(row)
    for i, part in enumerate(parts):
        if part.text != APPLIED:
            continue
        if i + 1 < len(parts) and parts[i + 1].text not in ("(", "[", "{"):
            part.tag, part.text, part.attrib = "mspace", None, dict(THIN)
        if i > 1 and (parts[i - 2].tag in ("mi", "mn", "msub", "msup", "msubsup", "mfrac") or parts[i - 2].text == ")"):
            row.insert(list(row).index(parts[i - 1]), ElementTree.Element("mspace", dict(THIN)))


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(typeset(node.astext()))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math-block" tabindex="0">{typeset(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
