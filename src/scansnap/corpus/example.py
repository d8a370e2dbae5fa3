"""A small English-like text that the package generates, always the same, for a first try without any download.

Each line is a short story about one topic.  Its sentences mix words of the topic with words that every story uses, and
its last sentence ends in the place where the topic's people belong:

    once the captain wanted the rope and sailed . ... and at last nobody was left but those in the harbour .

So a word such as `harbour` can be predicted only from topic words far before it.  These are distinct tokens of
different frequencies, some of them shared by two topics; function words are common tokens; and `the` is a query token
with many next tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Option = TypeVar("Option")

EXAMPLE_VERSION = 1
"""Changes with the text, which is then written to the cache again."""

SEED = 2023
STORIES = {"train": 720, "valid": 40, "test": 40}


@dataclass(frozen=True)
class Topic:
    """The words of a topic, in order of falling frequency."""

    place: str
    people: Sequence[str]
    things: Sequence[str]
    deeds: Sequence[str]
    looks: Sequence[str]


def _topic(place: str, people: str, things: str, deeds: str, looks: str) -> Topic:
    return Topic(place, people.split(), things.split(), deeds.split(), looks.split())


TOPICS = (
    _topic("harbour", "sailor captain", "ship rope sail anchor", "sailed rowed steered", "salty windy"),
    _topic("farm", "farmer shepherd", "field sheep plough barn", "sowed harvested fed", "muddy fertile"),
    _topic("kitchen", "cook baker", "bread oven spoon flour", "baked stirred tasted", "sweet warm"),
    _topic("library", "reader writer", "book page shelf letter", "read copied wrote", "dusty learned"),
    _topic("castle", "king knight", "sword crown shield tower", "ruled fought defended", "royal brave"),
    _topic("school", "teacher pupil", "lesson pencil desk letter", "taught learnt spelled", "clever noisy"),
    _topic("forest", "hunter ranger", "tree deer path owl", "tracked followed climbed", "green wild"),
    _topic("market", "merchant buyer", "coin basket scale cloth", "sold bought weighed", "cheap crowded"),
    _topic("hospital", "doctor nurse", "bandage bed medicine fever", "healed treated examined", "sick gentle"),
    _topic("station", "driver passenger", "train ticket engine rail", "travelled waited arrived", "late fast"),
    _topic("garden", "gardener child", "flower seed rake tree", "planted watered dug", "fragrant sunny"),
    _topic("theatre", "actor dancer", "stage mask curtain costume", "performed danced bowed", "funny tragic"),
    _topic("mine", "miner digger", "coal lamp shovel tunnel", "dug hammered lifted", "dark deep"),
    _topic("smithy", "smith apprentice", "iron hammer anvil sword", "forged hammered bent", "hot glowing"),
    _topic("concert", "singer drummer", "song drum violin choir", "sang played listened", "loud tuneful"),
    _topic("observatory", "astronomer student", "star telescope moon comet", "observed measured counted", "bright far"),
    _topic("beach", "swimmer surfer", "wave shell sand towel", "swam floated splashed", "sandy sunny"),
    _topic("court", "judge lawyer", "law witness verdict letter", "judged accused defended", "just stern"),
)

SUBJECTS = ("the {look} {person}", "the {person}", "one {person}", "this {person}", "their {person}", "every {person}")
OBJECTS = ("the {thing}", "a {look} {thing}", "the {common} {thing}", "another {thing}", "some {thing}", "his {thing}")
MIDDLES = (
    "{deed} {object}",
    "{deed} beside {object}",
    "{deed} and then {deed}",
    "{everyday} {object}",
    "{everyday} {object} and {deed}",
    "was {common} because of {object}",
    "{everyday} {object} once more",
)
OPENINGS = ("one day", "once", "in the morning", "at noon", "after that", "later", "then", "meanwhile", "but soon")
ENDINGS = ("again", "for a long time", "with a friend", "without a word", "as always", "all day", "slowly", "at last")
CLOSINGS = (
    "in the end everyone went back to the {place} .",
    "when night fell they all returned to the {place} .",
    "and at last nobody was left but those in the {place} .",
)
EVERYDAY = ("saw", "found", "took", "had", "kept", "lost", "wanted", "brought", "carried", "remembered", "forgot")
COMMON = ("old", "new", "small", "big", "good", "young", "strange", "beautiful", "happy", "tired", "quiet", "little")


def write_example(folder: str | Path) -> None:
    """Write train.txt, valid.txt and test.txt."""
    # random() is the only method that later versions of Python promise not to change
    draw = random.Random(SEED)
    for split, stories in STORIES.items():
        text = "".join(f"{_story(draw)}\n" for _ in range(stories))
        Path(folder, f"{split}.txt").write_text(text, encoding="utf-8", newline="\n")


def _story(draw: random.Random) -> str:
    topic = _pick(draw, TOPICS)
    sentences = [_sentence(draw, topic) for _ in range(2 + int(3 * draw.random()))]
    return " ".join([*sentences, _pick(draw, CLOSINGS).format(place=topic.place)])


def _sentence(draw: random.Random, topic: Topic) -> str:
    parts = [_pick(draw, SUBJECTS), _pick(draw, MIDDLES)]
    if draw.random() < 0.6:
        parts.insert(0, _pick(draw, OPENINGS))
    if draw.random() < 0.4:
        parts.append(_pick(draw, ENDINGS))
    sentence = " ".join(parts).replace("{object}", _pick(draw, OBJECTS))
    for slot, words in (
        ("{person}", topic.people),
        ("{thing}", topic.things),
        ("{deed}", topic.deeds),
        ("{look}", topic.looks),
        ("{everyday}", EVERYDAY),
        ("{common}", COMMON),
    ):
        while slot in sentence:
            sentence = sentence.replace(slot, _pick_falling(draw, words), 1)
    return f"{sentence} ."


def _pick(draw: random.Random, options: Sequence[Option]) -> Option:
    return options[int(draw.random() * len(options))]


def _pick_falling(draw: random.Random, options: Sequence[str]) -> str:
    """One of the options, the earlier ones more often."""
    return options[int(draw.random() ** 2 * len(options))]
