r"""Mathematics in texts: as signs that any terminal shows, and typeset on pages.

Texts have it in two forms.  A formula stands between dollar signs, as `$\eta_Y \gg \eta_Z$`, in the part of LaTeX that
`SIGNS`, `NAMES` and `WITH_ARGUMENT` list; a page typesets it.  Outside of formulas a letter is called by its name and
a sign is spelled, as in `eta_Y >> eta_Z`.  What is in neither form is text: "it costs $5" is no formula, nor is one
with a command that is not listed, and nothing that stands between dollar signs becomes markup.
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
"""Greek letters by name, in formulas and outside of them."""

SPELLED = {"sqrt": "√", "int": "∫", "infinity": "∞", "<=": "≤", ">=": "≥", "->": "→", ">>": "≫", "<<": "≪"}
"""Signs as they are spelled outside of formulas."""

SIGNS = {
    **LETTERS,
    "epsilon": "ε",
    "infty": "∞",
    "int": "∫",
    "sum": "Σ",
    "le": "≤",
    "ge": "≥",
    "to": "→",
    "gg": "≫",
    "lesssim": "≲",
    "ll": "≪",
    "approx": "≈",
    "pm": "±",
    "cdot": "·",
    "times": "×",
    "lvert": "|",
    "rvert": "|",
    "lceil": "⌈",
    "rceil": "⌉",
    "{": "{",
    "}": "}",
    ",": " ",
    "left": "",
    "right": "",
}
"""Commands of LaTeX that are one sign each."""

OPENING = ("lvert", "lceil")
"""Those after which a space means nothing."""

BREAKS = ("=", "<", ">", "+", "-", r"\le", r"\ge", r"\gg", r"\ll", r"\to")
"""Signs after which a long formula may go on in the next line."""

SHORT = 20
"""Signs of a formula that stays on one line."""

NAMES = ("ln", "exp", "max", "min")
"""Commands of LaTeX that are functions."""

WITH_ARGUMENT = {"sqrt": "√({})", "bar": "{}\u0304", "dot": "{}\u0307", "mathrm": "{}"}
"""Commands of LaTeX with one argument; `\\frac` has two."""

FORMULA = re.compile(r"\$(?=\S)([^$]+?)(?<=\S)\$(?!\d)")
TOKEN = re.compile(r"\\(?:[A-Za-z]+|.)|\s+|[\w+\-*/=<>|()\[\].,;:'{}_^]")
SPELLING = re.compile(
    "|".join(rf"(?<![A-Za-z\\]){w}(?![a-z])" if w[0].isalpha() else re.escape(w) for w in (*LETTERS, *SPELLED))
)
HIGH = r"\{[^{}]+\}|-?\([^()]*\)|-?\d+(?:\.\d+)?|[^\W\d_](?![^\W\d_])"
SYMBOL = re.compile(
    r"(?<![^\W\d])(?<!\.)(?P<letter>sum|max|min|[^\W\d_]|(?<!\d)10)(?P<prime>['′]?)"
    rf"(?:_(?P<low>\{{[^{{}}]+\}}|\w{{1,3}}'*)|(?=\^))(?:\^(?P<high>{HIGH}))?(?![\w(])|(?<=[)\]|])\^(?P<power>{HIGH})"
)
"""A letter with an index or a power, a power of ten or of what stands in brackets, outside of formulas."""

RAISED = str.maketrans("0123456789+-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻")


class _NoFormulaError(ValueError):
    """Text between dollar signs that is not in our part of LaTeX."""


def readable(text: str) -> str:
    r"""A text with mathematical signs in place of commands and names: η_Y for `$\eta_Y$` or eta_Y, ≤ for <=."""
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
    """A formula as a line of signs."""
    tokens = TOKEN.findall(latex)
    if "".join(tokens) != latex:
        raise _NoFormulaError
    tokens.reverse()
    signs = ""
    while tokens:
        signs += _term(tokens)
    return re.sub(r" +", " ", signs).strip()


def _term(tokens: list[str]) -> str:
    """The next sign, group or command with its arguments, taken from the end of the reversed tokens."""
    if not tokens:
        raise _NoFormulaError
    token = tokens.pop()
    if token == "{":
        inside = ""
        while tokens and tokens[-1] != "}":
            inside += _term(tokens)
        if not tokens:
            raise _NoFormulaError
        tokens.pop()
        return inside
    if token in "_^":
        return _attached(token, _term(tokens))
    if token == "}":
        raise _NoFormulaError
    if not token.startswith("\\"):
        return token
    name = token[1:]
    if name == "frac":
        return f"{_grouped(_term(tokens))}/{_grouped(_term(tokens))}"
    if name in WITH_ARGUMENT:
        while tokens and tokens[-1].isspace():
            tokens.pop()
        return WITH_ARGUMENT[name].format(_term(tokens))
    if name in SIGNS:
        if name in OPENING and tokens and tokens[-1].isspace():
            tokens.pop()
        return SIGNS[name]
    if name in NAMES:
        return name
    raise _NoFormulaError


def _attached(mark: str, text: str) -> str:
    """An index or a power."""
    if mark == "^" and text == "*":
        return "*"
    if mark == "^" and (raised := text.translate(RAISED)) != text and not set(text) - set("0123456789+-"):
        return raised
    if re.fullmatch(r"[\w']+" if mark == "_" else r"-?\d+(\.\d+)?|\w'?", text):
        return mark + text
    return f"_{{{text}}}" if mark == "_" else f"^({text})"


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
    """A formula for a page; it has passed `_signs`, so that it holds no command that we do not know."""
    from markupsafe import Markup, escape

    try:
        return Markup("<wbr>").join(_math(piece) for piece in _pieces(latex))
    except Exception:  # of some kind of latex2mathml's, for a user's formula that is none, as $_a$
        return escape(_signs(latex))


def _math(latex: str) -> Markup:
    from latex2mathml.converter import convert
    from markupsafe import Markup

    mathml = convert(latex).replace(' xmlns="http://www.w3.org/1998/Math/MathML" display="inline"', "")
    mathml = re.sub("<mo>(&#x0002F;|&#x0007C;)</mo>", r'<mo lspace="0" rspace="0">\1</mo>', mathml)  # / and |
    mathml = mathml.replace("<mi>&#x02032;</mi>", "<mo>&#x02032;</mo>")  # a prime
    thin = '<mspace width="0.17em" />'  # around names of functions, which TeX sets and MathML leaves to us
    functions = "|".join(NAMES)
    mathml = re.sub(rf"(?<=>)(<mi>(?:{functions})</mi>)(?!<mo stretchy=\"false\">&#x00028;)", rf"\1{thin}", mathml)
    ended = r"</m(?:i|n|sup|sub|frac|sqrt)>|&#x00029;</mo>"
    return Markup(re.sub(rf"({ended})(<mi>(?:{functions})</mi>)", rf"\1{thin}\2", mathml))


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
