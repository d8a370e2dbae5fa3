"""WikiText by name, through Hugging Face `datasets`, as plain files."""

from __future__ import annotations

from pathlib import Path

from scansnap.runtime.errors import InputError, brief

REPOSITORY = "Salesforce/wikitext"

WIKITEXT = {"wikitext-2": "wikitext-2-v1", "wikitext-103": "wikitext-103-v1"}
"""Configurations by name: the word-level texts, in which rare words are `<unk>`, as in the published runs."""

SPLITS = {"train": "train", "validation": "valid", "test": "test"}


def fetch_wikitext(name: str, folder: Path) -> None:
    """Write train.txt, valid.txt and test.txt."""
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            f"{name} is downloaded with Hugging Face datasets, which is not installed: pip install 'scansnap[text]', "
            "or give the path of a folder with it."
        ) from None
    try:
        content = load_dataset(REPOSITORY, WIKITEXT[name])
    except Exception as error:  # of many kinds: no network, no such dataset, no space
        raise InputError(f"{name} cannot be downloaded ({brief(error)}): give the path of a folder with it.") from None
    for split, name_here in SPLITS.items():
        with (folder / f"{name_here}.txt").open("w", encoding="utf-8", newline="\n") as file:
            for rows in content[split].iter(batch_size=1000):
                # a row is a line with its newline, except that a blank line is an empty row
                file.writelines(row.rstrip("\n") + "\n" for row in rows["text"])
