"""The generated text is always the same, small, and has the structure that it promises."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import scansnap as ss
from scansnap.corpus.evidence import chance_distinctness
from scansnap.corpus.example import CLOSINGS, TOPICS, write_example


def test_stories(tmp_path: Path) -> None:
    write_example(tmp_path)
    text = {split: (tmp_path / f"{split}.txt").read_text() for split in ("train", "valid", "test")}
    # a changed text needs another EXAMPLE_VERSION
    assert hashlib.sha256("".join(text.values()).encode()).hexdigest()[:16] == "1a5c2f7ca10224f0"
    for split in ("valid", "test"):  # held-out stories are new, but consist of known words
        assert not set(text[split].splitlines()) & set(text["train"].splitlines())
        assert set(text[split].split()) <= set(text["train"].split())
    people = {topic.place: set(topic.people) for topic in TOPICS}
    for story in text["train"].splitlines():
        *_, end, nothing = story.split(".")
        place = end.split()[-1]
        assert end.split()[0] in {closing.split()[0] for closing in CLOSINGS}
        assert nothing == ""
        assert people[place] & set(story.split())
        assert not any(people[other] & set(story.split()) for other in people if other != place)
    counts = Counter(text["train"].split())
    assert 250 < len(counts) < 350
    assert all(counts[topic.people[0]] > counts[topic.people[1]] for topic in TOPICS)
    assert sum(n > 1 for n in Counter(word for topic in TOPICS for word in (*topic.things, *topic.deeds)).values()) >= 5


def test_topic_words_are_distinct_and_function_words_are_common(tmp_path: Path) -> None:
    stored = ss.count_corpus("example", output=tmp_path / "counts")
    counts = stored.of("the")
    topical = [stored.token(topic.people[0]) for topic in TOPICS]
    common = [stored.token(text) for text in ("the", ".", "in", "one", "at")]
    assert counts.distinctness[topical].min() > 4 * counts.distinctness[common].max()
    # 18 words with about a hundred counts each: far more than chance alone gives any of them
    by_chance = chance_distinctness(counts.next_counts / counts.num_occurrences, counts.token_counts[topical])
    assert (counts.distinctness[topical] > 1.3 * by_chance).all()
