"""The generated text is always the same, small, and has the structure that it promises."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import numpy as np

import scansnap as ss
from scansnap.corpus.example import CLOSINGS, TOPICS, write_example
from scansnap.corpus.windows import occurrences_of


def test_it_is_always_the_same(tmp_path: Path) -> None:
    write_example(tmp_path)
    digest = hashlib.sha256(b"".join((tmp_path / f"{s}.txt").read_bytes() for s in ("train", "valid", "test")))
    assert digest.hexdigest()[:16] == "1a5c2f7ca10224f0"


def test_its_size(tmp_path: Path) -> None:
    write_example(tmp_path)
    text = {split: (tmp_path / f"{split}.txt").read_text() for split in ("train", "valid", "test")}
    words = [word for part in text.values() for word in part.split()]
    assert 25_000 < len(words) < 40_000
    assert 250 < len(set(words)) < 350
    assert sum(map(len, text.values())) < 300_000
    # held-out stories are new, but consist of known words
    train = text["train"].splitlines()
    for split in ("valid", "test"):
        assert not set(text[split].splitlines()) & set(train)
        assert set(text[split].split()) <= set(text["train"].split())
    # every slot was filled
    assert not set("{}") & set("".join(words))


def test_a_story_ends_in_the_place_of_its_topic(tmp_path: Path) -> None:
    write_example(tmp_path)
    people = {topic.place: set(topic.people) for topic in TOPICS}
    closings = {closing.split()[0] for closing in CLOSINGS}
    for story in (tmp_path / "train.txt").read_text().splitlines():
        *_, end, nothing = story.split(".")
        place = end.split()[-1]
        assert end.split()[0] in closings
        assert nothing == ""
        assert people[place] & set(story.split())
        assert not any(people[other] & set(story.split()) for other in people if other != place)


def test_frequencies_fall_and_topics_share_words(tmp_path: Path) -> None:
    write_example(tmp_path)
    counts = Counter((tmp_path / "train.txt").read_text().split())
    for topic in TOPICS:
        assert counts[topic.people[0]] > counts[topic.people[1]]
    shared = [word for word, n in Counter(w for t in TOPICS for w in (*t.things, *t.deeds)).items() if n > 1]
    assert len(shared) >= 5


def test_topic_words_are_distinct_and_function_words_are_common() -> None:
    corpus = ss.read_corpus("example")
    word = {text: i for i, text in enumerate(corpus.words(range(corpus.vocab_size)))}
    occurrences = occurrences_of(corpus.train, word["the"], 35)
    counts = occurrences.count()
    shuffled = occurrences.shuffled(np.random.default_rng(0)).count()
    topical = [word[topic.people[0]] for topic in TOPICS]
    common = [word[text] for text in ("the", ".", "in", "one", "at")]
    assert counts.distinctness[topical].min() > 4 * counts.distinctness[common].max()
    # 18 words with about a hundred counts each: far more than chance alone gives any of them
    assert (counts.distinctness[topical] > 1.3 * shuffled.distinctness[topical]).all()
