"""Sequences that depend on position, and a bias by position: autograd, sampling, limits, refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap import theory
from scansnap.claims.extensions import weighed
from scansnap.dynamics.kernel_engine import KernelEngine
from scansnap.dynamics.yz_tensors import YZTensorEngine
from tests.dynamics.reference import RATE, Given, bucketed, check_gradient, random_matrices

pytestmark = pytest.mark.rounding


class Biased(ss.YZTransformer):
    """The plain model with a bias by bucket, written on positions."""

    def __init__(self, classes: ss.PositionedClasses, bias: np.ndarray, **architecture: Any) -> None:
        super().__init__(classes.vocab_size, dtype=torch.float64, **architecture)
        self.bias = torch.nn.Parameter(torch.tensor(bias))
        self._bucket = np.repeat(np.arange(classes.num_buckets), classes.sizes)[::-1].copy()  # farthest first

    def _head(self, decoder: torch.Tensor, attention_logits: torch.Tensor, sequences: torch.Tensor) -> torch.Tensor:
        context, query = sequences[:, :-1], sequences[:, -1]
        one_hot = torch.nn.functional.one_hot(context, self.vocab_size).to(decoder.dtype)
        scores = attention_logits[query].gather(1, context) + self.bias[torch.from_numpy(self._bucket)]
        c = (torch.softmax(scores, 1)[:, None] @ one_hot).squeeze(1)

        def normalize(x: torch.Tensor) -> torch.Tensor:
            if self.layer.normalization == "layer":
                x = x - x.mean(-1, keepdim=True)
            return x / x.norm(dim=-1, keepdim=True)

        v = normalize(c)
        if self.layer.residual:
            v = normalize(v + torch.nn.functional.one_hot(query, self.vocab_size).to(v.dtype))
        return v @ decoder


@pytest.mark.parametrize(
    "architecture",
    [
        {"normalization": n, "residual": r, "heads": h}
        for n, r, h in itertools.product(("l2", "layer"), (False, True), (1, 2))
    ],
    ids=str,
)
@pytest.mark.parametrize("classes", [bucketed(), ss.near_distinct(num_positions=6)], ids=["buckets", "positions"])
@pytest.mark.parametrize("kind", [KernelEngine, YZTensorEngine])
@pytest.mark.parametrize("seed", range(3))
def test_against_autograd(kind: Any, classes: ss.PositionedClasses, architecture: dict[str, Any], seed: int) -> None:
    rng = np.random.default_rng((seed, 1))
    decoder, attention = random_matrices(classes, seed, architecture["heads"])
    bias, prior = rng.normal(size=classes.num_buckets), rng.normal(size=classes.vocab_size)
    length = int(classes.sizes.sum()) + 1
    sequences, owner = ss.sample_sequences(classes, num=8, seq_len=length, seed=seed)
    model = Biased(classes, bias, **architecture)
    options = {"attention_prior": prior, "position_bias": bias, "learn_position_bias": True, "seeds": seed}
    engine = check_gradient(kind, classes, decoder, attention, sequences, owner, model=model, **options, **architecture)
    moved = (engine.state()["position_bias"][0, 0] - bias) / RATE
    scale = max(float(parameter.grad.norm()) for parameter in model.parameters())
    assert np.linalg.norm(moved + model.bias.grad.numpy()) < 1e-12 * scale


def test_a_source_counts_by_bucket() -> None:
    class Merged(Given):
        def draw(self, **request: Any) -> Any:
            draw = super().draw(**request)
            return ss.Draw(draw.class_index, draw.counts.sum(2))

    with pytest.raises(ss.InputError, match=r"counts \(1, 4, 3\): give \(1, 4\) and \(1, 4, 2, 3\)"):
        ss.train(Merged(bucketed()), lr_y=1.0, lr_z=1.0, steps=1, seq_len=6, batch_size=4)


def test_sequences_follow_their_positions() -> None:
    """20,000 sequences: the share of each token at each position within five standard errors (40 shares)."""
    classes = bucketed()
    sequences, owner = ss.sample_sequences(classes, num=20_000, seq_len=6, seed=2)
    first = sequences[owner == 0][:, :-1]
    for place, bucket in enumerate([1, 1, 1, 0, 0]):
        for token, p in zip(classes.support(0), classes.part_probs[:3, bucket], strict=True):
            assert abs((first[:, place] == token).mean() - p) <= 5 * math.sqrt(p * (1 - p) / len(first))
    assert (sequences[:, -1] == classes.query[owner]).all()
    near = first[:, 3:]  # two positions of one bucket are drawn by themselves
    assert abs(np.corrcoef(near[:, 0] == 0, near[:, 1] == 0)[0, 1]) < 5 / math.sqrt(len(near))
    counts, _ = ss.sample_counts(classes, num=50, seq_len=6, seed=2)
    assert (counts.sum(1) == 5).all()


@pytest.mark.parametrize("batch_size", [None, 16])
def test_a_fixed_bias_is_other_classes(batch_size: int | None) -> None:
    """At T -> infinity, in steps, with a residual connection too; a wrong weight would be seen."""
    classes = bucketed()
    bias = np.array([0.7, -0.4])
    options: dict[str, Any] = {
        "lr_y": 1.0,
        "lr_z": 1.0,
        "steps": 30,
        "batch_size": batch_size,
        "seq_len": math.inf,
        "dtype": "float64",
        "residual": True,
    }
    biased = ss.train(classes, **options, position_bias=bias)
    plain = ss.train(weighed(classes, bias), **options)
    np.testing.assert_allclose(biased["attention"], plain["attention"], atol=1e-12)
    np.testing.assert_allclose(biased["loss"], plain["loss"], rtol=1e-10)
    other = ss.train(weighed(classes, 1.1 * bias), **options)
    assert np.abs(biased["attention"] - other["attention"]).max() > 1e-3


def test_the_whole_is_the_mixture() -> None:
    classes = bucketed()
    np.testing.assert_allclose(classes.probs[0, [0, 1, 3]], [0.4 * 0.6 + 0.6 * 0.2, 0.4 * 0.4, 0.6 * 0.8])
    assert classes != ss.PositionedClasses.from_parts(sizes=[3, 2], parts=[weighed(classes, np.zeros(2))] * 2)
    np.testing.assert_allclose(
        theory.position_prior(classes.part_probs, sizes=classes.sizes, bias=[0.3, 0.3]), classes.token_probs
    )
    with pytest.raises(ss.InputError, match="give one per bucket"):
        theory.position_prior(classes.part_probs, sizes=[1, 1, 1], bias=[0, 0, 0])


def test_files_keep_positions(tmp_path) -> None:
    for ending in ("toml", "json"):
        path = ss.write_classes(bucketed(), tmp_path / f"classes.{ending}")
        again = ss.read_classes(path)
        assert isinstance(again, ss.PositionedClasses)
        assert again == bucketed()
    text = (tmp_path / "classes.toml").read_text().replace("positions = [\n    2,\n    3,\n]", "positions = [2, 3, 1]")
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(ss.InputError, match="probs of class 0 must hold 3 lists"):
        ss.read_classes(tmp_path / "bad.toml")


def test_a_learned_bias_is_recorded_swept_and_kept(tmp_path) -> None:
    classes = ss.near_distinct(num_positions=6)
    options: dict[str, Any] = {"lr_z": 1.0, "lr_y": 1.0, "steps": 20, "seq_len": 7, "record": ("loss", "position_bias")}
    run = ss.train(classes, **options, learn_position_bias=True, record_every=20, store=tmp_path / "run.zarr")
    assert run["position_bias"].dims == ("run", "step", "bucket")
    assert run["position_bias"].values[0, -1, 0] > run["position_bias"].values[0, -1, -1]
    fixed = ss.train(classes, **options, position_bias={"alibi": 0.5}, record_every=20)
    assert np.allclose(fixed["position_bias"].values[0, -1], -0.5 * np.arange(1, 7))
    result = ss.sweep(classes, **options, learn_position_bias=[False, True], position_bias={"alibi": 0.5})
    assert result["position_bias"].dims == ("learn_position_bias", "lr_z", "lr_y", "seed", "step", "bucket")
    recorded = result["position_bias"].sel(learn_position_bias=False).squeeze()
    np.testing.assert_allclose(recorded, fixed["position_bias"].values[0], atol=1e-6)
    result = ss.sweep(classes, **options, learn_position_bias=[False, True])
    learned = result["position_bias"].sel(learn_position_bias=True).squeeze()
    np.testing.assert_allclose(learned, run["position_bias"].values[0], atol=1e-6)
    single = ss.sweep(classes, **options, position_bias=[0.0, -1.0, -1.0, -2.0, -2.0, -2.0])
    assert single["status"].size == 1


def test_a_bias_is_an_axis_or_recorded(tmp_path) -> None:
    """Both would be called position_bias."""
    classes = ss.near_distinct(num_positions=6)
    options: dict[str, Any] = {
        "lr_z": 1.0,
        "lr_y": 1.0,
        "steps": 2,
        "seq_len": 7,
        "learn_position_bias": [False, True],
        "position_bias": [None, {"alibi": 0.5}],
    }
    result = ss.sweep(classes, **options, record=("loss",))
    assert result["loss"].dims == ("position_bias", "learn_position_bias", "lr_z", "lr_y", "seed", "step")
    assert result["status"].size == 4
    assert result["position_bias"].values.tolist() == [None, '{"alibi": 0.5}']
    for store in (None, tmp_path / "s.zarr"):
        with pytest.raises(ss.InputError, match="'position_bias' is a coordinate of this result"):
            ss.sweep(classes, **options, record=("loss", "position_bias"), store=store)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("classes", "options", "sentence"),
    [
        (ss.syn_small(), {"position_bias": [0.0]}, "tokens of these classes do not depend on their position"),
        (ss.syn_small(), {"record": ("position_bias",)}, "position_bias cannot be recorded"),
        (bucketed(), {}, "seq_len is 128 but these classes have 5 positions: give 6, or math.inf"),
        (bucketed(), {"seq_len": 6, "position_bias": [1.0]}, "1 numbers for 2 buckets of positions: give one"),
        (bucketed(), {"seq_len": 6, "position_bias": {"alibi": 1.0}}, "use buckets of one position each"),
        (bucketed(), {"seq_len": 6, "position_bias": {"t5": 1.0}}, "or {'alibi': slope}"),
        (bucketed(), {"seq_len": 6, "layers": 2}, "which is for one layer: give layers=1"),
        (bucketed(), {"seq_len": 6, "num_sequences": 4}, "fixed sets are for other classes"),
        (bucketed(), {"seq_len": 6, "batch_size": None}, "give a batch size, or seq_len=math.inf"),
        (bucketed(), {"seq_len": 6, "learn_position_bias": 1}, "learn_position_bias is 1: give True or False"),
    ],
)
def test_refusals(classes: ss.SequenceClasses, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ss.InputError, match=sentence):
        ss.train(classes, lr_y=1.0, lr_z=1.0, steps=1, **options)


def test_parts_must_match() -> None:
    single = ss.syn_small()
    with pytest.raises(ss.InputError, match="sizes is"):
        ss.PositionedClasses.from_parts(sizes=[0], parts=[single])
    with pytest.raises(ss.InputError, match="there are 2 sizes but 1 parts"):
        ss.PositionedClasses.from_parts(sizes=[1, 2], parts=[single])
    with pytest.raises(ss.InputError, match="part 1 differs from part 0 in query"):
        ss.PositionedClasses.from_parts(sizes=[1, 2], parts=[single, ss.syn_medium(num_query=1)])
    with pytest.raises(ss.InputError, match="num_positions is 0"):
        ss.near_distinct(num_positions=0)
    with pytest.raises(ss.InputError, match="near is 2"):
        ss.near_distinct(near=2)
