"""One contract: the compiled kernel and the tensor engine agree to rounding."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.dynamics import tensor_engine
from scansnap.dynamics.kernel_engine import KernelEngine
from scansnap.dynamics.task import flow_task, train_task
from scansnap.dynamics.yz_tensors import YZTensorEngine
from scansnap.validation.options import option, options
from tests.dynamics.reference import Given, bucketed, decoder_of, engine_of, logits_of, relative
from tests.strategies import sequence_classes

pytestmark = pytest.mark.rounding

CLASSES = ss.syn_medium(num_query=3)
FEW, WIDE = bucketed(), ss.near_distinct(num_positions=20, num_common=280)
FIXED = {"position_bias": [0.5, -1.0], "seq_len": 6}
LEARNED = {**FIXED, "learn_position_bias": True}
OTHER_LAYER = {"normalization": "layer", "heads": 2, "residual": True, "init": "uniform"}
ADAM = {"optimizer": "adam", "lr_y": [0.1, 0.3], "lr_z": [0.2, 0.1]}
SIGN = {"optimizer": "sign_sgd", "lr_y": [0.01, 0.02], "lr_z": [0.02, 0.01]}
MODIFIED = {"decoder_gradient": "modified", "init": "uniform"}

SETTINGS: dict[str, tuple[ss.DataSource, dict[str, Any]]] = {
    "plain": (CLASSES, {}),
    "momentum": (CLASSES, {"momentum": 0.9}),
    "momentum, rare classes": (CLASSES, {"momentum": 0.9, "batch_size": 1, "steps": 80}),
    "adam": (CLASSES, ADAM),
    "adam, rare classes": (CLASSES, {**ADAM, "batch_size": 1}),
    "sign, few tokens": (CLASSES, {**SIGN, "init": "uniform", "seq_len": 3}),
    "expected over classes": (CLASSES, {"batch_size": None}),
    "infinite sequences": (CLASSES, {"seq_len": math.inf}),
    "population": (CLASSES, {"batch_size": None, "seq_len": math.inf, "momentum": 0.5}),
    "long sequences": (CLASSES, {"seq_len": 5000, "batch_size": 4}),
    "uniform start": (CLASSES, {"init": "uniform", "momentum": 0.9}),
    "modified": (CLASSES, {**MODIFIED, "momentum": 0.5}),
    "modified, other layer": (CLASSES, {**MODIFIED, **OTHER_LAYER, "batch_size": 3}),
    "layer, momentum, rare classes": (
        CLASSES,
        {"normalization": "layer", "momentum": 0.9, "batch_size": 1, "steps": 80},
    ),
    "layer, sign": (CLASSES, {**SIGN, "normalization": "layer"}),
    "whole set": (CLASSES, {"num_sequences": 12, "batch_size": None, "momentum": 0.9}),
    "batches of a fixed set": (CLASSES, {"num_sequences": 12}),
    "schedule": (CLASSES, {"schedule": "cosine"}),
    "decay to the prior": (CLASSES, {"weight_decay": 0.5, "attention_prior": {"common": -1.0}}),
    "clip": (CLASSES, {"clip": 0.05}),
    "all of them": (CLASSES, {"schedule": "linear", "weight_decay": 0.2, "clip": 0.1, "momentum": 0.9}),
    "all of them, adam": (CLASSES, {**ADAM, "schedule": "linear", "weight_decay": 0.2, "clip": 0.1}),
    "decay, clip, other layer": (CLASSES, {**OTHER_LAYER, "weight_decay": 0.1, "clip": 0.02}),
    "fixed bias": (FEW, FIXED),
    "fixed bias, a source of counts": (Given(FEW), FIXED),
    "fixed bias, infinite sequences": (FEW, {**FIXED, "seq_len": math.inf}),
    "fixed bias, other layer": (FEW, {**FIXED, **OTHER_LAYER}),
    "learned bias": (FEW, LEARNED),
    "learned bias, a source of counts": (Given(FEW), LEARNED),
    "learned bias, infinite sequences": (FEW, {**LEARNED, "seq_len": math.inf}),
    "learned bias, other layer": (FEW, {**LEARNED, **OTHER_LAYER}),
    "learned bias, adam": (FEW, {**LEARNED, **ADAM}),
    "learned bias, decay, clip": (FEW, {**LEARNED, "weight_decay": 0.3, "clip": 0.05}),
    "learned bias, modified": (FEW, {**LEARNED, **MODIFIED}),
    "learned bias, wide": (
        WIDE,
        {**OTHER_LAYER, "position_bias": np.linspace(0.5, -1.0, 20), "learn_position_bias": True, "seq_len": 21},
    ),
}


@pytest.mark.parametrize(("source", "options"), SETTINGS.values(), ids=SETTINGS)
def test_engines_agree(source: ss.DataSource, options: dict[str, Any]) -> None:
    """All runs at once in the kernel; in pieces, with evaluations between them, on tensors and for one run alone."""
    arguments = {"lr_y": [1.0, 0.5], "lr_z": [0.5, 1.0], "seeds": [3, 4], "steps": 30, **options}
    second = {name: arguments[name][1] for name in ("lr_y", "lr_z", "seeds")}
    steps = arguments["steps"]
    kernel, tensor = (engine_of(kind, source, **arguments) for kind in (KernelEngine, YZTensorEngine))
    alone = engine_of(KernelEngine, source, **{**arguments, **second})
    whole = kernel.advance(steps)
    for engine in (tensor, alone):
        pieces = [engine.advance(7), engine.evaluate(), engine.advance(steps)]
        losses, accuracies = (np.concatenate([pieces[0][i], pieces[2][i]], axis=1) for i in range(2))
        np.testing.assert_allclose(whole[0][-len(losses) :], losses, rtol=1e-10, atol=1e-13)
        # A share of the batch, summed in another order.
        np.testing.assert_allclose(whole[1][-len(losses) :], accuracies, rtol=0, atol=1e-12)
        np.testing.assert_allclose(pieces[1][0], losses[:, 7], rtol=1e-10, atol=1e-13)
    states = [engine.state() for engine in (kernel, tensor, alone)]
    for name in ("decoder", "attention_logits", *(["position_bias"] if "learn_position_bias" in options else [])):
        together, tensors, single = (state[name] for state in states)
        assert relative(together, tensors) < 1e-10, name
        assert np.array_equal(together[1], single[0]), name  # the same bits, whatever runs beside it
    np.testing.assert_allclose(kernel.evaluate(), tensor.evaluate(), rtol=1e-10)


ALONE = ss.SequenceClasses(probs=[[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]], query=[2, 2], next_token=[3, 4], vocab_size=5)


@pytest.mark.parametrize("optimizer", ["sign_sgd", "normalized_sgd", "adam"])
@pytest.mark.parametrize(
    "layer", [{}, {"normalization": "layer", "residual": True, "heads": 2}], ids=["basic", "other"]
)
@pytest.mark.parametrize(("classes", "seq_len"), [(ss.syn_medium(num_query=3), 2), (ALONE, 9)], ids=["T = 2", "alone"])
def test_what_has_no_gradient_does_not_move(
    classes: ss.SequenceClasses, seq_len: int, layer: dict[str, Any], optimizer: str
) -> None:
    """A token alone has all the attention; a gradient of rounding would move its logit by the whole rate."""
    engine = engine_of(
        KernelEngine,
        classes,
        optimizer=optimizer,
        init="uniform",
        seq_len=seq_len,
        lr_y=0.1,
        lr_z=0.1,
        steps=10,
        **layer,
    )
    before = logits_of(engine).copy()
    engine.advance(10)
    assert np.array_equal(logits_of(engine), before)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"optimizer": "adam", "lr_y": 0.1, "lr_z": 0.1}])
def test_float32_stays_near_float64(options: dict[str, Any]) -> None:
    """Twenty steps in float32 differ from float64 by accumulated rounding: 1e-4 is a hundred times what is seen."""
    arguments = {"lr_y": 1.0, "lr_z": 1.0, "steps": 20, "batch_size": 32, "init": "uniform", **options}
    for kind in (KernelEngine, YZTensorEngine):
        single, double = (engine_of(kind, ss.syn_small(), dtype=d, **arguments) for d in ("float32", "float64"))
        single.advance(20), double.advance(20)
        assert np.abs(logits_of(single) - logits_of(double)).max() < 1e-4


@settings(max_examples=25)
@given(classes=sequence_classes(), data=st.data())
def test_engines_agree_on_anything(classes: ss.SequenceClasses, data) -> None:
    options = {
        "batch_size": data.draw(st.sampled_from([None, 1, 3, 9, 20])),
        "seq_len": data.draw(st.sampled_from([2, 7, 64, 65, math.inf])),
        "init": data.draw(st.sampled_from(["zeros", "uniform"])),
        "momentum": data.draw(st.sampled_from([None, 0.0, 0.5, 0.9])),
        "seeds": data.draw(st.integers(0, 2**63 - 1)),
        "steps": 12,
    }
    kernel, tensor = (engine_of(kind, classes, **options) for kind in (KernelEngine, YZTensorEngine))
    assert np.allclose(kernel.advance(12)[0], tensor.advance(12)[0], rtol=1e-9, atol=1e-12)
    # Where attention hardly moves its logits are rounding alone: an absolute tolerance, as for the loss.
    assert np.allclose(logits_of(kernel), logits_of(tensor), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [KernelEngine, YZTensorEngine])
def test_merged_columns_are_exact(kind) -> None:
    """A start whose idle columns are equal gives what the same start gives when they are stored separately."""
    classes = ss.syn_small()
    size = classes.vocab_size
    rng = np.random.default_rng(0)
    decoder = np.repeat(rng.normal(size=(size, 1)), size, axis=1)
    decoder[:, classes.next_token] = rng.normal(size=(size, 2))
    nudged = decoder + 1e-9 * rng.normal(size=(size, size))  # no two columns equal: nothing is merged
    engines = [engine_of(kind, classes, init=(y, np.zeros((size, size))), steps=20) for y in (decoder, nudged)]
    for engine in engines:
        engine.advance(20)
    assert decoder_of(engines[0]).shape[2] < decoder_of(engines[1]).shape[2]
    assert np.allclose(logits_of(engines[0]), logits_of(engines[1]), atol=1e-8)


def test_accuracy_counts_only_clear_winners() -> None:
    """At a zero start all logits tie, and nothing is right."""
    engine = engine_of(KernelEngine, ss.syn_small(), steps=30, batch_size=64)
    _, accuracy = engine.advance(30)
    assert accuracy[0, 0] == 0
    assert accuracy[0, -1] == 1


def test_float32_keeps_small_residuals() -> None:
    """A loss of 1e-12, far below float32's rounding of one, is followed to 1e-5 of itself."""
    classes = ss.syn_small()
    decoder = np.zeros((34, 34))
    for i in range(2):
        decoder[classes.distinct_tokens(i), classes.next_token[i]] = 22.0
    losses = [
        engine_of(
            KernelEngine, classes, init=(decoder, 0 * decoder), batch_size=None, seq_len=math.inf, dtype=dtype
        ).evaluate()[0][0]
        for dtype in ("float32", "float64")
    ]
    assert 1e-20 < losses[1] < 1e-10
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@options
class MoreOptions(ss.TrainOptions):
    pull: float = option("An option that no engine implements.", default=0.0)


@options
class MoreFlowOptions(ss.FlowOptions):
    pull: float = option("An option that the flow does not implement.", default=0.0)


def test_an_option_that_nothing_implements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine hands on what it does not know, and the last one refuses it: nothing is ignored."""
    rates: dict[str, Any] = {"lr_y": 1.0, "lr_z": 1.0}
    train_task(ss.syn_small(), MoreOptions(**rates, steps=1))
    with pytest.raises(ss.InputError, match="pull is given, which no engine implements"):
        train_task(ss.syn_small(), MoreOptions(**rates, steps=1, pull=0.5))
    with pytest.raises(ss.InputError, match="pull is given, which the flow does not implement"):
        flow_task(ss.syn_small(), MoreFlowOptions(**rates, times=[1.0], pull=0.5))
    monkeypatch.setattr(tensor_engine, "TENSOR_OPTIONS", tensor_engine.TENSOR_OPTIONS - {"clip"})
    with pytest.raises(ss.InputError, match="clip is given, which no engine implements"):
        ss.train("reversal", lr_theta=1.0, steps=1, clip=1.0)
    assert ss.train("syn-small", **rates, steps=1, clip=1.0).sizes["step"] == 2  # the kernel knows it
