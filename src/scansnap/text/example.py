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
from typing import TypeVar

Option = TypeVar("Option")

SEED = 2023
STORIES = {"train": 720, "valid": 40, "test": 40}

SLOTS = ("{place}", "{person}", "{thing}", "{deed}", "{look}")
TOPICS = (
    ("harbour", "sailor captain", "ship rope sail anchor", "sailed rowed steered", "salty windy"),
    ("farm", "farmer shepherd", "field sheep plough barn", "sowed harvested fed", "muddy fertile"),
    ("kitchen", "cook baker", "bread oven spoon flour", "baked stirred tasted", "sweet warm"),
    ("library", "reader writer", "book page shelf letter", "read copied wrote", "dusty learned"),
    ("castle", "king knight", "sword crown shield tower", "ruled fought defended", "royal brave"),
    ("school", "teacher pupil", "lesson pencil desk letter", "taught learnt spelled", "clever noisy"),
    ("forest", "hunter ranger", "tree deer path owl", "tracked followed climbed", "green wild"),
    ("market", "merchant buyer", "coin basket scale cloth", "sold bought weighed", "cheap crowded"),
    ("hospital", "doctor nurse", "bandage bed medicine fever", "healed treated examined", "sick gentle"),
    ("station", "driver passenger", "train ticket engine rail", "travelled waited arrived", "late fast"),
    ("garden", "gardener child", "flower seed rake tree", "planted watered dug", "fragrant sunny"),
    ("theatre", "actor dancer", "stage mask curtain costume", "performed danced bowed", "funny tragic"),
    ("mine", "miner digger", "coal lamp shovel tunnel", "dug hammered lifted", "dark deep"),
    ("smithy", "smith apprentice", "iron hammer anvil sword", "forged hammered bent", "hot glowing"),
    ("concert", "singer drummer", "song drum violin choir", "sang played listened", "loud tuneful"),
    ("observatory", "astronomer student", "star telescope moon comet", "observed measured counted", "bright far"),
    ("beach", "swimmer surfer", "wave shell sand towel", "swam floated splashed", "sandy sunny"),
    ("court", "judge lawyer", "law witness verdict letter", "judged accused defended", "just stern"),
)
"""For each slot, the words of a topic in order of falling frequency."""

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


def example_stories() -> dict[str, list[str]]:
    """The stories of each split, always the same."""
    # random() is the only method that later versions of Python promise not to change
    draw = random.Random(SEED)
    return {split: [_story(draw) for _ in range(number)] for split, number in STORIES.items()}


def _story(draw: random.Random) -> str:
    topic = {slot: words.split() for slot, words in zip(SLOTS, _pick(draw, TOPICS), strict=True)}
    sentences = [_sentence(draw, topic) for _ in range(2 + int(3 * draw.random()))]
    return " ".join([*sentences, _pick(draw, CLOSINGS).replace("{place}", topic["{place}"][0])])


def _sentence(draw: random.Random, topic: dict[str, list[str]]) -> str:
    parts = [_pick(draw, SUBJECTS), _pick(draw, MIDDLES)]
    if draw.random() < 0.6:
        parts.insert(0, _pick(draw, OPENINGS))
    if draw.random() < 0.4:
        parts.append(_pick(draw, ENDINGS))
    sentence = " ".join(parts).replace("{object}", _pick(draw, OBJECTS))
    for slot, words in {**topic, "{everyday}": EVERYDAY, "{common}": COMMON}.items():
        while slot in sentence:
            sentence = sentence.replace(slot, _pick_falling(draw, words), 1)
    return f"{sentence} ."


def _pick(draw: random.Random, options: Sequence[Option]) -> Option:
    return options[int(draw.random() * len(options))]


def _pick_falling(draw: random.Random, options: Sequence[str]) -> str:
    """One of the options, the earlier ones more often."""
    return options[int(draw.random() ** 2 * len(options))]
