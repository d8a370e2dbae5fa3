"""`scansnap verify --from`: claims of a Python file in the table, in full, as JSON, as a picture and on a page."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import scansnap as ss
from scansnap.claims.catalog import own_claims
from scansnap.claims.verify import read_claims
from tests.cli.test_cli import run

CLAIMS = '''
from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scansnap as ss
from beside import LIMIT
from scansnap.claims.check import Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.growth import lemma_6


@dataclass
class Options:
    """A dataclass needs the module that it is in."""

    limit: float = LIMIT


@claim(where="my notes", setting=lambda: Setting(ss.syn_small()))
def common_attention_falls(check: Check) -> None:
    """Attention on common tokens <falls> & stays below 1.

    Check: Ten expected updates.
    """
    classes = check.setting.classes
    dataset = ss.train(classes, lr_y=1.0, lr_z=1.0, steps=10, batch_size=None, seq_len=np.inf, progress=False)
    attention = dataset["attention"].isel(run=0, layer=0, head=0).sel(token=classes.common_tokens)
    common = attention.sum("token").mean("class").values
    check.at_most("attention on common tokens", common, Options().limit)
    check.curve = Curve(dataset["step"].values.astype(float), {"common": common}, "steps", "attention", log_x=False)


@claim(where="nowhere")
def one_is_two(check: Check) -> None:
    """One is two."""
    check.equal("one", 1.0, 2.0, tolerance=0.1)


alias = one_is_two
lemma_6_on_syn_small = replace(lemma_6, id="lemma_6_on_syn_small", setting=lambda: Setting(ss.syn_small()))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a claims file and a module beside it."""
    (tmp_path / "beside.py").write_text("LIMIT = 1.0\n")
    (tmp_path / "my_claims.py").write_text(CLAIMS)
    return tmp_path


def test_a_file_s_own_claims_are_read_in_order(folder: Path) -> None:
    path = list(sys.path)
    ids = [claim.id for claim in read_claims(folder / "my_claims.py")]
    assert ids == ["common_attention_falls", "one_is_two", "lemma_6_on_syn_small"]
    assert sys.path == path


def test_they_are_shown_like_the_paper_s(folder: Path) -> None:
    """A table of all, those named in full with a picture, and JSON."""
    table = run("verify", "--from", "my_claims.py", cwd=folder)
    assert table.returncode == 0, table.stderr
    heading, holds, fails, _, count, hint = table.stdout.splitlines()
    assert holds.startswith("✓ common_attention_falls ")
    assert fails.startswith("✗ one_is_two ")
    assert heading.index("verdict") == holds.index("holds") == fails.index("fails")
    assert count.startswith("2 hold; 1 fails")
    assert "scansnap verify common_attention_falls --from my_claims.py" in hint

    full = run("verify", "common_attention_falls", "--from", "my_claims.py", cwd=folder)
    assert "✓ common_attention_falls (my notes): holds\n  Attention on common tokens <falls>" in full.stdout
    assert "how:        Ten expected updates." in full.stdout
    assert "a wrong factor of 1.01 in the prediction would NOT be noticed" in full.stdout
    assert (folder / "results" / "common_attention_falls.png").read_bytes().startswith(b"\x89PNG")

    two = json.loads(run("verify", "one_is_two", "lemma_6", "--from", "my_claims.py", "--json", cwd=folder).stdout)
    assert [entry["verdict"] for entry in two] == ["fails", "holds"]


def test_the_page_has_them(folder: Path) -> None:
    done = run("verify", "--from", "my_claims.py", "--page", "pages/claims.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"page: {Path('pages/claims.html')}\n")
    page = (folder / "pages" / "claims.html").read_text()
    assert "Attention on common tokens &lt;falls&gt; &amp; stays below 1." in page
    assert "<falls>" not in page
    assert page.count("data:image/png;base64,") == 3
    again = run("verify", "lemma_6", "--page", "pages/claims.html", "--json", cwd=folder)
    assert json.loads(again.stdout)["id"] == "lemma_6"
    assert "one_is_two" not in (folder / "pages" / "claims.html").read_text()
    assert [path.name for path in (folder / "pages").iterdir()] == ["claims.html"]


NONSENSE = {
    "empty": ("", "my_claims.py defines no claim: make one with the decorator scansnap.claim"),
    "imported": ("from scansnap.claims.attention import theorem_2\n", "defines no claim"),
    "syntax": ("def broken(:\n", r"cannot run the file .*: SyntaxError: .*line 1"),
    "bytes": ("\0\0", "cannot run the file .*: .*null bytes"),
    "import": ("import no_such_module\n", r"ModuleNotFoundError: No module named .* \(my_claims.py, line 1\)"),
    "raises": ("x = 1\n\nx / 0\n", r"ZeroDivisionError: division by zero \(my_claims.py, line 3\)\."),
    "exits": ("import sys\nsys.exit()\n", r"SystemExit \(my_claims.py, line 2\)"),
    "need": (
        "from scansnap.claims.claim import claim\n@claim(where='here', needs=('rain',))\ndef a(check): 'A'\n",
        r"cannot run the file .*: unknown need 'rain': choose one of .* \(my_claims.py, line 2\)\.",
    ),
}


@pytest.mark.parametrize(("text", "message"), NONSENSE.values(), ids=NONSENSE)
def test_a_file_without_usable_claims_is_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "my_claims.py").write_text(text)
    with pytest.raises(ss.InputError, match=message) as caught:
        read_claims(tmp_path / "my_claims.py")
    assert "\n" not in str(caught.value)


def test_they_are_listed_without_a_check(folder: Path) -> None:
    """Those of a file, those named, and by default all that there are; each in one line."""
    listed = run("verify", "--list", "--from", "my_claims.py", cwd=folder)
    assert listed.returncode == 0, listed.stderr
    first, second, third = listed.stdout.splitlines()
    assert first == "common_attention_falls my notes: Attention on common tokens <falls> & stays below 1."
    assert second == "one_is_two             nowhere: One is two."
    assert third.startswith("lemma_6_on_syn_small   Lemma 6, Eqs. 44 and 45: In continuous time h obeys exp(M h)")
    assert not (folder / "results").exists()

    plain = json.loads(
        run("verify", "--list", "--json", "one_is_two", "Eq. 10", "--from", "my_claims.py", cwd=folder).stdout
    )
    assert [entry["id"] for entry in plain] == ["one_is_two", "lemma_4"]
    assert plain[0] == {"id": "one_is_two", "statement": "One is two.", "where": "nowhere"}

    everything = run("verify", "--list", cwd=folder).stdout.splitlines()
    assert [row.split()[0] for row in everything] == list(own_claims())
    refused = run("verify", "--list", "--strict", cwd=folder)
    assert refused.returncode == 2
    assert "--list checks no claim: leave out --picture, --page and --strict" in refused.stderr


def test_files_that_cannot_be_read_or_written_are_one_sentence(folder: Path) -> None:
    (folder / "mine.html").write_text("mine")
    for words, message in (
        (("--from", "absent.py"), "cannot read the file absent.py: No such file"),
        (("--from", "."), "cannot read the file .: "),
        (("--from", "my_claims.py", "theorem"), "unknown claim 'theorem'"),
        (("lemma_6", "--page", "claims.txt"), "give a file whose name ends in .html"),
        (("lemma_6", "--page", "mine.html"), "mine.html is a file that scansnap did not write"),
        (("lemma_6", "--page", "my_claims.py/claims.html"), f"cannot write {Path('my_claims.py/claims.html')}"),
    ):
        done = run("verify", *words, cwd=folder)
        assert done.returncode == 2, words
        assert message in done.stderr
        assert done.stderr.count("\n") == 1
    assert (folder / "mine.html").read_text() == "mine"
