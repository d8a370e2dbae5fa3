r"""Mathematics in text: Unicode symbols in terminals, and MathML on pages.

Texts contain mathematics in two forms.  A formula stands between dollar signs, as `$\eta_Y \gg \eta_Z$`.  It may use
the symbols that `latex2mathml` knows, and `SYMBOL_COMMANDS`, `WITH_ARGUMENT` and `\frac`.  Outside of formulas, Greek
letters are written by name and symbols are spelled, as in `eta_Y >> eta_Z`.  Anything else is plain text: "it costs $5"
is not a formula, nor is one with an unknown command, and nothing between dollar signs becomes markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

LETTERS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "Gamma": "Γ",
    "delta": "δ",
    "Delta": "Δ",
    "eps": "ε",
    "zeta": "ζ",
    "eta": "η",
    "theta": "θ",
    "Theta": "Θ",
    "iota": "ι",
    "lambda": "λ",
    "nu": "ν",
    "xi": "ξ",
    "rho": "ρ",
    "sigma": "σ",
    "chi": "χ",
    "omega": "ω",
    "psi": "ψ",
}
"""Greek letters by name, as they are spelled outside of formulas."""

SPELLED = {"sqrt": "√", "int": "∫", "infinity": "∞", "<=": "≤", ">=": "≥", "->": "→", ">>": "≫", "<<": "≪"}
"""Symbols as they are spelled outside of formulas."""

WITH_ARGUMENT = {r"\sqrt": "√({})", r"\bar": "{}\u0304", r"\dot": "{}\u0307", r"\mathrm": "{}"}
"""LaTeX commands with one argument, as a line of text shows them."""

FUNCTIONS = "ln|exp|max|min"
SYMBOL_COMMANDS = {
    r"\ln": "ln",
    r"\exp": "exp",
    r"\max": "max",
    r"\min": "min",
    r"\sum": "Σ",
    r"\epsilon": "ε",
    r"\,": " ",
    r"\left": "",
    r"\right": "",
}
"""LaTeX commands that are not one symbol, or not the symbol that `latex2mathml` has."""

BREAKS = ("=", "<", ">", "+", "-", r"\le", r"\ge", r"\gg", r"\ll", r"\to")
"""Symbols after which a long formula may continue on the next line."""

SHORT = 20
"""The most symbols of a formula that stays on one line."""

FORMULA = re.compile(r"\$(?=\S)([^$]+?)(?<=\S)\$(?!\d)")
TOKEN = re.compile(r"\\(?:[A-Za-z]+|,)|\s+|[\w+\-*/=<>|()\[\].,;:'{}_^]")
ARGUMENT = re.compile(r"(\\(?:sqrt|bar|dot|mathrm)|[_^])\s*(\\[A-Za-z]+|[^\s{\\])")
"""A command, index or power whose argument has no braces."""

COMMAND = re.compile(r"\\(?:lvert|lceil)\s*|\\(?!(?:frac|sqrt|bar|dot|mathrm)\b)(?:[A-Za-z]+|,)")
GROUP = re.compile(r"\\frac\{([^{}]*)\}\{([^{}]*)\}|(\\(?:sqrt|bar|dot|mathrm)|[_^])\{([^{}]*)\}")
SPELLING = re.compile(
    "|".join(rf"(?<![A-Za-z\\]){w}(?![a-z])" if w[0].isalpha() else re.escape(w) for w in (*LETTERS, *SPELLED))
)
HIGH = r"\{[^{}]+\}|-?\([^()]*\)|-?\d+(?:\.\d+)?|[^\W\d_](?![^\W\d_])"
SYMBOL = re.compile(
    r"(?<![^\W\d])(?<!\.)(?P<letter>sum|max|min|[^\W\d_]|(?<!\d)10)(?P<prime>['′]?)"
    rf"(?:_(?P<low>\{{[^{{}}]+\}}|\w{{1,3}}'*)|(?=\^))(?:\^(?P<high>{HIGH}))?(?![\w(])|(?<=[)\]|])\^(?P<power>{HIGH})"
)
"""A letter with an index or a power, a power of ten or of what stands in brackets, outside of formulas."""

BRACES = {1: "{", 2: "}"}
"""Braces that stay, which `_attached` writes as control characters."""

RAISED = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")


class _NoFormulaError(ValueError):
    """Text between dollar signs that is not a formula."""


def readable(text: str) -> str:
    r"""A text with Unicode symbols in place of commands and names: η_Y for `$\eta_Y$` or eta_Y, ≤ for <=."""
    return "".join(_signs(part) if formula else _spelled(part) for formula, part in _parts(text))


def typeset(text: str) -> Markup:
    """A text as markup for a page: formulas as MathML, which browsers draw by themselves, and the rest escaped."""
    from markupsafe import Markup

    return Markup("").join(_mathml(part) if formula else _indexed(_spelled(part)) for formula, part in _parts(text))


def _parts(text: str) -> Iterator[tuple[bool, str]]:
    """Formulas, each with True, and what stands between them."""
    end = 0
    for match in FORMULA.finditer(text):
        try:
            _signs(match[1])
        except _NoFormulaError:
            continue
        yield False, text[end : match.start()]
        yield True, match[1]
        end = match.end()
    yield False, text[end:]


def _spelled(text: str) -> str:
    return SPELLING.sub(lambda match: LETTERS.get(match[0]) or SPELLED[match[0]], text)


def _signs(latex: str) -> str:
    """A formula as a line of text: groups in braces are written out from the innermost outward."""
    if "".join(TOKEN.findall(latex)) != latex:
        raise _NoFormulaError
    text, found = COMMAND.sub(lambda match: _sign(match[0].strip()), ARGUMENT.sub(r"\1{\2}", latex)), 1
    while found:
        text, found = GROUP.subn(_written_out, text)
    if set(text) & set("{}\\"):
        raise _NoFormulaError
    return re.sub(r"\s+", " ", text).strip().translate(BRACES)


def _sign(command: str) -> str:
    """The symbol or the name of a function that a LaTeX command stands for."""
    from latex2mathml.symbols_parser import convert_symbol

    if command in SYMBOL_COMMANDS:
        return SYMBOL_COMMANDS[command]
    code = convert_symbol(command)
    if code is None:
        raise _NoFormulaError
    return chr(int(code, 16))


def _written_out(match: re.Match[str]) -> str:
    above, below, command, inside = match.groups()
    if command is None:
        return f"{_grouped(above)}/{_grouped(below)}"
    if command in "_^":
        return _attached(command, inside)
    return WITH_ARGUMENT[command].format(inside)


def _attached(mark: str, text: str) -> str:
    """An index or a power."""
    if mark == "^" and text == "*":
        return "*"
    if mark == "^" and (raised := text.translate(RAISED)) != text and not set(text) - set("0123456789+-"):
        return raised
    if re.fullmatch(r"[\w']+" if mark == "_" else r"-?\d+(\.\d+)?|\w'?", text):
        return mark + text
    return f"_\x01{text}\x02" if mark == "_" else f"^({text})"


def _grouped(text: str) -> str:
    return text if re.fullmatch(r"[\w.()√]+", text) else f"({text})"


def _pieces(latex: str) -> Iterator[str]:
    """A long formula cut after its outermost relations, sums and differences, where narrow screens break the line."""
    if len(_signs(latex)) <= SHORT:
        yield latex
        return
    piece, depth = "", 0
    for token in TOKEN.findall(latex):
        depth += (token in ("{", "(", "[", r"\lvert", r"\lceil")) - (token in ("}", ")", "]", r"\rvert", r"\rceil"))
        piece += token
        if depth == 0 and token in BREAKS and piece.strip() != token:
            yield piece
            piece = ""
    if piece.strip():
        yield piece


def _mathml(latex: str) -> Markup:
    """A formula for a page."""
    from markupsafe import Markup, escape

    try:
        return Markup("<wbr>").join(_math(piece) for piece in _pieces(latex))
    except Exception:  # of some kind of latex2mathml's, for a user's formula that is none, as $a^b^c$
        return escape(_signs(latex))


def _math(latex: str) -> Markup:
    from latex2mathml.converter import convert
    from markupsafe import Markup

    mathml = convert(latex).replace(' xmlns="http://www.w3.org/1998/Math/MathML" display="inline"', "")
    mathml = re.sub("<mo>(&#x0002F;|&#x0007C;)</mo>", r'<mo lspace="0" rspace="0">\1</mo>', mathml)  # / and |
    mathml = mathml.replace("<mi>&#x02032;</mi>", "<mo>&#x02032;</mo>")  # a prime
    thin = '<mspace width="0.17em" />'  # around names of functions, which TeX sets and MathML leaves to us
    mathml = re.sub(rf"(?<=>)(<mi>(?:{FUNCTIONS})</mi>)(?!<mo stretchy=\"false\">&#x00028;)", rf"\1{thin}", mathml)
    ended = r"</m(?:i|n|sup|sub|frac|sqrt)>|&#x00029;</mo>"
    return Markup(re.sub(rf"({ended})(<mi>(?:{FUNCTIONS})</mi>)", rf"\1{thin}\2", mathml))


def _indexed(text: str) -> Markup:
    """Text in which letters with an index or a power are set as such."""
    from markupsafe import Markup, escape

    parts, end = [], 0
    for match in SYMBOL.finditer(text):
        low, high, power = (unwrapped(match[group] or "") for group in ("low", "high", "power"))
        if not low and not high and not power:
            continue
        letter = {"sum": "Σ"}.get(match["letter"], match["letter"] or "")
        parts += [
            escape(text[end : match.start()]),
            Markup("<i>{}</i>" if len(letter) == 1 else "{}").format(letter),
            escape(match["prime"] or ""),
        ]
        marks = (("sub", low), ("sup", high), ("sup", power))
        parts += [Markup(f"<{tag}>{{}}</{tag}>").format(part) for tag, part in marks if part]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def unwrapped(text: str) -> str:
    """An index or a power without the brackets around it."""
    return text[1:-1] if text[:1] in ("{", "(") else text
