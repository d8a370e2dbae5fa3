"""A claim is its docstring: its paragraphs, and what is refused in one sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import scansnap as ss


def claim_with(docstring: str | None, **options: object) -> ss.Claim:
    def stated(check: ss.Check) -> None: ...

    stated.__doc__ = docstring
    return ss.claim(where="here", **options)(stated)


def test_paragraphs_are_the_texts_of_the_claim_and_the_rest_is_free() -> None:
    @ss.claim(where="here")
    def growth(check: ss.Check) -> None:
        r"""The share $\theta$ grows
        like $\ln t$.

        Check: 400 updates
            of the engine, to the
        last digit.

        Proof: it is the sum of 1/t.  The condition: none.

        Conditions: attention fixed,
        $\eta_Y < 1$

        Correction: like $\ln \ln t$:
        twice the logarithm

        It also checks itself.
        """

    assert growth.statement == r"The share $\theta$ grows like $\ln t$."
    assert growth.how == "400 updates of the engine, to the last digit."
    assert growth.conditions == r"attention fixed, $\eta_Y < 1$"
    assert growth.correction == r"like $\ln \ln t$: twice the logarithm"


def test_a_statement_is_enough() -> None:
    alone = claim_with("It holds.")
    assert (alone.statement, alone.conditions, alone.correction, alone.how) == ("It holds.", "none", "", "")


def test_a_computed_statement_leaves_the_docstring_its_named_paragraphs() -> None:
    computed = claim_with("A derivation.\n\nCheck: By hand.\n\nConditions: small", statement="It holds.")
    assert (computed.statement, computed.how, computed.conditions) == ("It holds.", "By hand.", "small")
    assert claim_with(None, statement="It holds.").statement == "It holds."


@pytest.mark.parametrize(
    ("docstring", "message"),
    [
        (None, "stated states nothing: make the statement the first paragraph of its docstring"),
        ("  \n ", "stated states nothing"),
        ("Check: By hand.", "stated states nothing"),
        ("It holds.\n\nCondition: small", "of stated has a paragraph 'Condition:': write 'Conditions:'"),
        ("It holds.\n\nconditions: small", "of stated has a paragraph 'conditions:': write 'Conditions:'"),
        ("It holds.\n\nCHECK: by hand", "of stated has a paragraph 'CHECK:': write 'Check:'"),
        ("It holds.\n\nCorrections: it does", "of stated has a paragraph 'Corrections:': write 'Correction:'"),
        ("It holds.\n\nCheck : by hand", "of stated has a paragraph 'Check :': write 'Check:'"),
        ("It holds.\nCheck: By hand.", "of stated, leave an empty line before 'Check:'"),
        ("It holds.\n\nCheck: By hand.\n    Conditions: small", "of stated, leave an empty line before 'Conditions:'"),
        ("It holds.\n\nCheck: a\n\nCheck: b", "of stated has two paragraphs 'Check:': make them one"),
        ("It holds.\n\nCheck:\n\nBy hand.", "of stated, 'Check:' is empty: write its text after the colon"),
        ("It holds for $\theta$.", "of stated has backslashes that Python replaces: write r"),
        ("It holds.\n\nConditions: $\beta = 0$", "of stated has backslashes that Python replaces: write r"),
    ],
)
def test_a_docstring_that_does_not_state_a_claim_is_one_sentence(docstring: str | None, message: str) -> None:
    with pytest.raises(ss.InputError, match=message) as caught:
        claim_with(docstring)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ss.claim("It holds.", where="here"),
        lambda: ss.claim("It holds.", where="here", conditions="small"),
        lambda: ss.claim(statement="It holds.", where="here", correction="it does not"),
        lambda: ss.claim(test_a_statement_is_enough),
    ],
)
def test_texts_as_arguments_are_refused_with_what_to_write(make: Callable[[], object]) -> None:
    with pytest.raises(
        ss.InputError, match=r"a claim is its docstring: write @claim\(where=\.\.\.\), the statement as"
    ):
        make()


def test_python_without_docstrings_is_one_sentence() -> None:
    words = [sys.executable, "-OO", "-m", "scansnap", "verify", "--list"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "claims are stated in docstrings, which python -OO removes: use python, or python -O." in done.stderr
    assert done.stderr.count("\n") == 1
