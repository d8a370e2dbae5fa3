"""The explorer's engine trains as the library does: the same numbers, the same random start, the same sequences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap.data.sampling import sequence_key, uniform, word
from tests.explorer.engine import ask, draw_classes, for_engine, needs_node, plain

STEPS, EVERY = 1000, 250

pytestmark = needs_node


def draw_options(rng: np.random.Generator, rules: list[str], *, sampled: bool) -> dict[str, Any]:
    """Every option of the explorer, with one of the optimizers."""
    optimizer = str(rng.choice(rules))
    scale = {"sgd": 1.0, "adam": 0.01, "sign_sgd": 0.01, "normalized_sgd": 0.02}[optimizer]
    lengths = [None, 3, 17, 64, 130, 300, 1280, 1281, 3000]  # counted one by one up to 1,280, then by binomials
    options = {
        "lr_y": scale * 10 ** rng.uniform(-1, 0.3),
        "lr_z": scale * 10 ** rng.uniform(-1.5, 0),
        "decoder_gradient": str(rng.choice(["true", "true", "modified"])),
        "batch_size": None if not sampled or rng.random() < 0.2 else int(rng.integers(1, 9)),
        "seq_len": lengths[rng.integers(len(lengths))] if sampled else None,
        "seeds": int(rng.integers(0, 2**53)),
        "optimizer": optimizer,
        "momentum": float(rng.choice([0, 0.5, 0.9])) if optimizer == "sgd" else None,
        "init": str(rng.choice(["zeros", "uniform"])),
        "residual": bool(rng.random() < 0.5),
        "normalization": str(rng.choice(["l2", "layer"])),
    }
    return {**options, "seq_len": math.inf if options["seq_len"] is None else options["seq_len"]}


def array(frames: list[dict[str, Any]], name: str) -> np.ndarray:
    """A quantity of the engine's frames, with NaN for JSON's null."""
    return np.array([frame[name] for frame in frames], dtype=float)


def compare(settings: list[tuple[ss.SequenceClasses, dict[str, Any]]]) -> list[int]:
    """Compare runs with the library's as long as they are determined; the last record of each that was.

    Where attention hops around its optimum, rounding grows.  A second run of the library, with a rate larger by one
    part in 10^15, shows how far float64 determines a setting at all.
    """
    records = list(range(0, STEPS + 1, EVERY))
    answers = ask(
        "train",
        [
            {"classes": plain(classes), "options": for_engine(**options), "steps": records}
            for classes, options in settings
        ],
    )
    compared = []
    for (classes, options), answer in zip(settings, answers, strict=True):
        rates = options["lr_y"] * np.array([1, 1 + 1e-15])
        result = ss.train(classes, **{**options, "lr_y": rates}, steps=STEPS, record_every=EVERY, dtype="float64")
        logits, again = result["attention_logits"].values.reshape(2, len(records), -1)
        scale = max(np.abs(logits).max(), 1e-3)
        determined = np.abs(again - logits).max(-1) <= 1e-10 * scale
        last = len(records) if determined.all() else int(determined.argmin())
        frames, first = answer[:last], result.isel(run=0, step=slice(last))
        np.testing.assert_allclose(
            array(frames, "attentionLogits"), logits[:last], rtol=0, atol=1e-9 * scale, err_msg=str(options)
        )
        for name in ("loss", "accuracy", "entropy", "attention"):
            ours = array(frames, name)
            np.testing.assert_allclose(
                ours, first[name].values.reshape(ours.shape), rtol=1e-9, atol=1e-9, err_msg=f"{name} {options}"
            )
        compared.append(records[last - 1])
    return compared


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sampled", [False, True], ids=["population", "sampled"])
def test_training_is_the_librarys(sampled: bool, count: int) -> None:
    """SGD, momentum and Adam: attention logits agree to 1e-9 of the largest in each setting through 1,000 steps."""
    rng = np.random.default_rng(17 + sampled)
    rules = ["sgd", "sgd", "adam"]
    settings = [(draw_classes(rng), draw_options(rng, rules, sampled=sampled)) for _ in range(count)]
    assert compare(settings) == [STEPS] * count


def test_steps_of_fixed_size_are_the_librarys() -> None:
    """Sign-SGD and normalized SGD, as long as float64 determines them."""
    rng = np.random.default_rng(19)
    rules = ["sign_sgd", "normalized_sgd"]
    settings = [(draw_classes(rng), draw_options(rng, rules, sampled=i % 2 == 1)) for i in range(40)]
    assert np.mean(compare(settings)) > STEPS / 2


def test_a_token_alone_moves_no_attention() -> None:
    """Sequences of one token and the query: every rule leaves the logits where they are."""
    options = [
        for_engine(optimizer=rule, normalization=kind, residual=True, batch_size=4, seq_len=2)
        for rule in ("sgd", "adam", "sign_sgd", "normalized_sgd")
        for kind in ("l2", "layer")
    ]
    cases = [{"classes": plain(ss.syn_small()), "options": each, "steps": [50]} for each in options]
    for (frame,) in ask("train", cases):
        assert not np.any(frame["attentionLogits"])


@pytest.mark.parametrize("normalization", ["l2", "layer"])
def test_the_random_start_is_the_librarys_bit_for_bit(normalization: str) -> None:
    """In vocabularies of many sizes, since 1/sqrt(M) must round as the library's."""
    settings = [ss.single_common(num_classes=2, num_distinct=3, vocab_size=size) for size in (34, 35, 47, 99, 1000)]
    options = {
        "lr_y": 1.0,
        "lr_z": 1.0,
        "seeds": 2**53 - 1,
        "init": "uniform",
        "normalization": normalization,
        "seq_len": math.inf,
        "batch_size": None,
        "residual": True,
    }
    cases = [{"classes": plain(classes), "options": for_engine(**options), "steps": [0]} for classes in settings]
    for classes, (frame,) in zip(settings, ask("train", cases), strict=True):
        result = ss.train(classes, **options, steps=0, dtype="float64")
        assert frame["attentionLogits"] == result["attention_logits"].values.ravel().tolist()


def test_random_words_are_the_librarys_bit_for_bit() -> None:
    places = [(0, 0, 0), (1, 2, 3), (2**53 - 1, 10**6, 127), (2**32, 2**32 - 1, 2**31)]
    asked = [dict(zip(("seed", "step", "index"), place, strict=True), count=50) for place in places]
    for place, answer in zip(places, ask("words", asked), strict=True):
        key = np.uint64(sequence_key(*map(np.uint64, place)))
        words = [int(word(key, j)) for j in range(50)]
        assert [(high << 32) | low for high, low, _ in answer] == words
        assert [share for _, _, share in answer] == [uniform(key, j) for j in range(50)]


def rare_tokens() -> ss.SequenceClasses:
    """Tokens that occur 0.2, 9.5 and 10.5 times in 2,000, around the mean where the way to draw binomials changes."""
    return ss.SequenceClasses.from_supports(
        tokens=[range(5), range(5)],
        probs=[[1e-4, 0.00475, 0.00525, 0.3, 0.6899], [0.2, 0.2, 0.2, 0.2, 0.2]],
        query=[5, 5],
        next_token=[6, 7],
        vocab_size=8,
    )


@pytest.mark.parametrize("length", [2, 21, 66, 128, 1280, 1281, 2001, 5000, 200_000])
def test_sequences_are_the_librarys(length: int) -> None:
    """The same classes and counts for the same seed; 1,281 tokens and more are counted by binomials."""
    rng = np.random.default_rng(length)
    settings = [*(draw_classes(rng) for _ in range(19)), rare_tokens()]
    options = for_engine(batch_size=16, seq_len=length, seeds=int(rng.integers(2**53)))
    cases = [{"classes": plain(classes), "options": options, "step": 7} for classes in settings]
    for classes, answer in zip(settings, ask("sequences", cases), strict=True):
        seeds = np.array([options["seed"]], np.uint64)
        draw = classes.draw(seeds=seeds, step=7, num_sequences=16, length=length - 1)
        assert [n for n, _ in answer] == draw.class_index[0].tolist()
        assert [counts for _, counts in answer] == [
            row[: len(classes.support(n))].tolist() for n, row in zip(draw.class_index[0], draw.counts[0], strict=True)
        ]
