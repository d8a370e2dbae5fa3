"""The page of claims: complete, self-contained, and nothing on it is taken for markup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import scansnap as ss
from scansnap.claims.check import Check, Setting
from scansnap.claims.claim import Claim, claim
from scansnap.report.claims_page import write_claims_page

EVIL = "<script>alert('x')</script> & \"q\" $\\frac{"


def evil_claim() -> Claim:
    def evil(check: Check) -> None:
        check.equal(EVIL, 1.0, 1.0, tolerance=0.1)

    evil.__doc__ = f"{EVIL}\n\nConditions: {EVIL}\n\nCorrection: {EVIL}\n\nCheck: {EVIL}"
    return claim(where=EVIL, setting=lambda: Setting(ss.syn_small()))(evil)


def test_it_has_every_verdict_and_measurement(tmp_path: Path) -> None:
    verdicts = ss.verify("lemma_6", "lemma_10", "theorem_4", "residual_fates", classes=ss.syn_small())
    write_claims_page(tmp_path / "claims.html", verdicts)
    text = (tmp_path / "claims.html").read_text()
    for verdict in verdicts:
        assert f'<details class="claim" id="{verdict.id}">' in text
        assert f"<dd>{verdict.claim.category}</dd>" in text
        for measurement in verdict.measurements:
            assert f'<td class="number" data-of="measured">{measurement.measured_text}</td>' in text
    assert "<p>1 holds; 1 holds under its assumptions only; 2 do not apply. " in text
    assert "theorem_4 says nothing about these classes: it needs exactly one common token." in text
    assert text.count("data:image/png;base64,") == sum(not verdict.reason for verdict in verdicts)
    assert "formula" not in text
    assert "<dd>K, M and the rates</dd>" in text
    assert "|<i>λ</i><sub>1</sub>| &lt; 1/K (2): " in text  # an assumption that the setting breaks


def test_texts_are_escaped_and_nothing_is_loaded(tmp_path: Path) -> None:
    (verdict,) = ss.verify(claims=[evil_claim()])
    write_claims_page(tmp_path / "claims.html", [verdict, replace(verdict, reason=EVIL)])
    text = re.sub(r"base64,[A-Za-z0-9+/=]+", "", (tmp_path / "claims.html").read_text())
    assert text.count("<script") == 1  # the page's own
    assert text.count("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &#34;q&#34;") >= 10
    assert re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", text) == []
    assert "url(" not in text
    assert "alert(" not in re.sub("<script>.*</script>", "", text, flags=re.DOTALL).replace("alert(&#39;", "")
    assert "http" not in text
