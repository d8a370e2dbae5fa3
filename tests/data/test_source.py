"""Data of a user's own: in training, sweeps, stores and resumption, and what is refused."""

from __future__ import annotations

import math
import warnings
from functools import cached_property
from typing import Any

import numpy as np
import pytest

import scansnap as ss

pytestmark = pytest.mark.rounding

OPTIONS: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0, "steps": 12, "batch_size": 8, "seq_len": 17, "dtype": "float64"}


class Bursts(ss.DataSource):
    """Tokens that come `burst` at a time: half as many draws, each counted twice."""

    def __init__(self, classes: ss.SequenceClasses, burst: Any = 2) -> None:
        self._classes = classes
        self.burst = burst

    @property
    def classes(self) -> ss.SequenceClasses:
        return self._classes

    def draw(self, *, seeds: Any, step: int, num_sequences: int | None, length: int) -> ss.Draw:
        drawn = self._classes.draw(seeds=seeds, step=step, num_sequences=num_sequences, length=length // self.burst)
        return ss.Draw(drawn.class_index, self.burst * drawn.counts)


def same(first: Any, second: Any) -> bool:
    return all(np.array_equal(first[name], second[name], equal_nan=True) for name in first.data_vars)


def test_counts_are_those_that_are_drawn() -> None:
    """Those of the inner classes, twice, for seeds, steps and numbers of sequences alike."""
    source = Bursts(ss.syn_small())
    counts, owner = ss.sample_counts(source, num=20, seq_len=17, seed=3)
    inner, same_owner = ss.sample_counts(ss.syn_small(), num=20, seq_len=9, seed=3)
    assert np.array_equal(counts, 2 * inner)
    assert np.array_equal(owner, same_owner)
    assert (counts.sum(1) == 16).all()
    with pytest.raises(ss.InputError, match=r"^Bursts gives token counts, not sequences: use sample_counts\.$"):
        ss.sample_sequences(source, num=2, seq_len=17)


class Forgetful(Bursts):
    """Draws with a generator of its own, whatever the seed."""

    rng = np.random.default_rng(0)

    def draw(self, *, seeds: Any, **asked: Any) -> ss.Draw:
        return super().draw(seeds=self.rng.integers(1000, size=len(seeds), dtype=np.uint64), **asked)


def test_a_source_that_ignores_its_seed_is_refused() -> None:
    with pytest.raises(ss.InputError, match="Forgetful gave two different draws for the same seed"):
        ss.train(Forgetful(ss.syn_small()), **OPTIONS)


class Fixed(Bursts):
    """The same sequences for every seed."""

    def draw(self, *, seeds: Any, **asked: Any) -> ss.Draw:
        return super().draw(seeds=np.zeros_like(seeds), **asked)


def test_a_source_that_gives_seeds_the_same_sequences_warns() -> None:
    with pytest.warns(UserWarning, match=r"^Fixed gives the seeds 1 and 3 the same sequences: unless that is intended"):
        ss.train(Fixed(ss.syn_small()), **{**OPTIONS, "seeds": [3, 1]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ss.train(Fixed(ss.syn_small()), **{**OPTIONS, "seeds": 3})
        ss.train(Fixed(ss.syn_small()), **{**OPTIONS, "seeds": [3, 1], "seq_len": math.inf})
        ss.train(Bursts(ss.syn_small()), **{**OPTIONS, "seeds": [3, 1]})


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"batch_size": None},
        {"num_sequences": 5},
        {"layers": 2},
        {"residual": True, "heads": 2, "init": "uniform"},
        {"record": ("loss", "fresh_loss")},
        {"optimizer": "adam", "lr_y": 0.1, "lr_z": 0.1},
    ],
    ids=str,
)
def test_training_uses_them(more: dict[str, Any]) -> None:
    """Only ratios of counts matter: bursts of two are sequences of half the length, and not those of the whole."""
    result = ss.train(Bursts(ss.syn_small()), **{**OPTIONS, **more})
    half = ss.train(ss.syn_small(), **{**OPTIONS, "seq_len": 9, **more})
    for name in result.data_vars:
        np.testing.assert_allclose(result[name], half[name], rtol=1e-8, atol=1e-10)
    assert np.abs(result["loss"] - ss.train(ss.syn_small(), **{**OPTIONS, **more})["loss"]).max() > 1e-3
    assert result.attrs["classes_fingerprint"] == Bursts(ss.syn_small()).fingerprint


def test_long_sequences_are_those_of_the_classes() -> None:
    for batch in (None, 8):
        options = {**OPTIONS, "seq_len": math.inf, "batch_size": batch}
        result, plain = (ss.train(data, **options) for data in (Bursts(ss.syn_small()), ss.syn_small()))
        np.testing.assert_allclose(result["attention_logits"], plain["attention_logits"], rtol=1e-9, atol=1e-12)
    times = {"lr_y": 1.0, "lr_z": 1.0, "times": [1, 100]}
    assert same(ss.flow(Bursts(ss.syn_small()), **times), ss.flow(ss.syn_small(), **times))


def test_sources_are_an_axis_of_a_sweep(tmp_path) -> None:
    """Beside the classes they draw from, whose tokens they share: attention can be recorded of both."""
    settings = {"bursts": Bursts(ss.syn_small()), "independent": ss.syn_small()}
    options = {**OPTIONS, "seeds": [0, 1], "record": ("loss", "attention")}
    result = ss.sweep(settings, **options, shard_size=1, store=tmp_path / "s.zarr")
    assert result["attention"].dims == ("classes", "lr_z", "lr_y", "seed", "step", "layer", "head", "class", "token")
    assert result["token_kind"].dims == ("token",)
    for name, source in settings.items():
        alone = ss.train(source, **options, record_every=None)
        np.testing.assert_allclose(result["loss"].sel(classes=name).values[0, 0], alone["loss"], rtol=1e-12)
        np.testing.assert_allclose(result["attention"].sel(classes=name).values[0, 0], alone["attention"], atol=1e-12)
    with pytest.raises(ss.StoreError, match="holds a run on other data"):
        ss.sweep({**settings, "bursts": Bursts(ss.syn_small(), 4)}, **options, store=tmp_path / "s.zarr")


@pytest.mark.parametrize(
    ("one", "other"), [(2, 4), ((1, 2), (1, 3)), (None, (1,)), (np.zeros(3), np.ones(3)), ({"a": 1}, {"a": 2})], ids=str
)
def test_every_setting_counts(one: Any, other: Any) -> None:
    def fingerprint(setting: Any) -> str:
        return Bursts(ss.syn_small(), setting).fingerprint

    assert fingerprint(one) == fingerprint(one)
    assert fingerprint(one) != fingerprint(other)


def test_what_is_made_later_does_not_count() -> None:
    class Tabled(Bursts):
        @cached_property
        def table(self) -> np.ndarray:
            return np.arange(3)

    source = Tabled(ss.syn_small())
    before = source.fingerprint
    assert len(source.table) == 3
    assert source.fingerprint == before != Bursts(ss.syn_small()).fingerprint


def test_classes_that_draw_otherwise_are_asked_to_draw() -> None:
    """Compiled code draws by itself, but not for classes that have a `draw` of their own."""

    class Constant(ss.SequenceClasses):
        def draw(self, *, seeds: Any, step: int, num_sequences: int | None, length: int) -> ss.Draw:
            return super().draw(seeds=0 * seeds, step=0, num_sequences=num_sequences, length=length)

    plain = ss.syn_small()
    classes = Constant(probs=plain.probs, query=plain.query, next_token=plain.next_token, vocab_size=plain.vocab_size)
    assert classes.fingerprint != plain.fingerprint  # in a store they are not the same
    result = ss.train(classes, **{**OPTIONS, "lr_y": 0.0, "lr_z": 0.0}, init="uniform", record="loss")["loss"].values[0]
    assert (result == result[0]).all()  # the same batch at every step


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda c, a: (c[:, :2], a[:, :2]), r"gave class_index \(1, 2\) and counts \(1, 2, 20\): give \(1, 8\) and"),
        (lambda c, a: (c, a[..., :3]), r"gave class_index \(1, 8\) and counts \(1, 8, 3\): give .* \(1, 8, 20\)\.$"),
        (lambda c, a: (c + 1, a), "gave a class that does not exist: classes are whole numbers from 0 to 1"),
        (lambda c, a: (c - 1, a), "gave a class that does not exist: classes are whole numbers from 0 to 1"),
        (lambda c, a: (c * 1.0, a), "gave a class that does not exist: classes are whole numbers from 0 to 1"),
        (lambda c, a: (c, -a), "gave a sequence without tokens, or a count below 0"),
        (lambda c, a: (c, 0 * a), "gave a sequence without tokens, or a count below 0"),
        (lambda c, a: (c, np.nan * a), "gave a sequence without tokens, or a count below 0"),
    ],
)
def test_wrong_draws_are_one_sentence(change: Any, sentence: str) -> None:
    class Wrong(Bursts):
        def draw(self, **request: Any) -> ss.Draw:
            drawn = super().draw(**request)
            return ss.Draw(*change(drawn.class_index, drawn.counts))

    with pytest.raises(ss.InputError, match=rf"^Wrong\.draw {sentence}"):
        ss.train(Wrong(ss.syn_small()), **OPTIONS)


def test_what_is_no_draw_is_one_sentence() -> None:
    class Nothing(Bursts):
        def draw(self, **request: Any) -> ss.Draw:
            return None  # type: ignore[return-value]

    with pytest.raises(ss.InputError, match=r"^Nothing\.draw gave NoneType: give a Draw\(class_index, counts\)\.$"):
        ss.train(Nothing(ss.syn_small()), **OPTIONS)
    with pytest.raises(ss.InputError, match=r"^Bursts\.classes is str: give SequenceClasses\.$"):
        ss.train(Bursts("syn-small"), **OPTIONS)  # type: ignore[arg-type]
    with pytest.raises(ss.InputError, match=r"^classes is the class Bursts and not SequenceClasses or a DataSource"):
        ss.train(Bursts, **OPTIONS)  # type: ignore[arg-type]


def test_a_length_can_be_refused() -> None:
    class Even(Bursts):
        def check_length(self, seq_len: float) -> None:
            if seq_len % 2 == 0:
                raise ss.InputError(f"seq_len is {seq_len}: give an odd number.")

    ss.train(Even(ss.syn_small()), **{**OPTIONS, "steps": 1})
    for ask in (
        lambda: ss.train(Even(ss.syn_small()), **{**OPTIONS, "seq_len": 16}),
        lambda: ss.sweep(Even(ss.syn_small()), **{**OPTIONS, "seq_len": [17, 16]}),
        lambda: ss.sample_counts(Even(ss.syn_small()), num=1, seq_len=16),
    ):
        with pytest.raises(ss.InputError, match="seq_len is 16: give an odd number"):
            ask()
