"""WikiText by name, through Hugging Face `datasets`, as plain files."""

from __future__ import annotations

from pathlib import Path

from scansnap.base.errors import InputError

REPOSITORY = "Salesforce/wikitext"

WIKITEXT = {"wikitext-2": "wikitext-2-v1", "wikitext-103": "wikitext-103-v1"}
"""Names and configurations.  These are the word-level texts with rare words as `<unk>`, as in the published runs."""

SPLITS = {"train": "train", "validation": "valid", "test": "test"}


def fetch_wikitext(name: str, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            f"{name} is fetched with Hugging Face datasets, which is not installed: pip install 'scansnap[text]', or "
            "give the path of a folder that holds it."
        ) from None
    try:
        content = load_dataset(REPOSITORY, WIKITEXT[name])
    except Exception as error:  # of many kinds: no network, no such data set, no space
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:120]
        raise InputError(f"{name} cannot be fetched ({reason}): give the path of a folder that holds it.") from None
    for split, ours in SPLITS.items():
        with (folder / f"{ours}.txt").open("w", encoding="utf-8", newline="\n") as file:
            for rows in content[split].iter(batch_size=1000):
                # a row is a line with its end, but a blank line is an empty row
                file.writelines(row.rstrip("\n") + "\n" for row in rows["text"])
