"""True SGD's own quantities, the energy law, and the exact reduction of symmetric classes against `flow`."""

from __future__ import annotations

import math

import numpy as np
import pytest

import scansnap as ss
from scansnap import theory
from scansnap.claims.population import symmetric_arguments
from scansnap.runtime.errors import InputError
from tests.dynamics.reference import population_gradients


@pytest.mark.parametrize("gradient", ["true", "modified"])
@pytest.mark.parametrize(
    "classes",
    [ss.single_common(), ss.syn_small(), ss.syn_medium(num_query=3)],
    ids=["single_common", "syn_small", "syn_medium"],
)
def test_the_reduction_is_the_flow(classes: ss.SequenceClasses, gradient: str) -> None:
    """To 1e-6 from 1 to 10^6 steps, at equal rates: nothing in the reduction needs eta_Y >> eta_Z."""
    times = np.geomspace(1, 1e6, 7)
    rates = {"lr_y": 0.5, "lr_z": 0.5, "decoder_gradient": gradient}
    reduced = theory.symmetric_flow(times, **symmetric_arguments(classes), **rates)
    whole = ss.measure.one_head(ss.flow(classes, **rates, times=times, rtol=1e-10, atol=1e-12))
    z = whole["attention_logits"].isel(run=0, query=0)
    np.testing.assert_allclose(z.sel(token=classes.distinct_tokens(0)), reduced.distinct_logits, atol=1e-6)
    np.testing.assert_allclose(z.sel(token=classes.common_tokens), reduced.common_logits, atol=1e-6)
    c = whole["attention"].isel({"run": 0, "class": 0})
    np.testing.assert_allclose(c.sel(token=classes.distinct_tokens(0)), reduced.distinct_attention, atol=1e-6)
    both = reduced.distinct_attention.sum(axis=1) + reduced.common_attention.sum(axis=1)
    np.testing.assert_allclose(both, 1)
    loss = -np.log1p(-reduced.residual)
    np.testing.assert_allclose(whole["loss"].isel(run=0), loss, rtol=1e-5)


def test_drives_of_the_reduction_are_those_measured() -> None:
    classes = ss.single_common(num_classes=4, vocab_size=60)
    times = [5.0, 500.0]
    reduced = theory.symmetric_flow(times, **symmetric_arguments(classes), lr_y=0.5, lr_z=0.5)
    whole = ss.measure.one_head(
        ss.flow(classes, lr_y=0.5, lr_z=0.5, times=times, record=("attention_logits", "decoder"), rtol=1e-10)
    )
    for i in range(2):
        record = whole.isel(run=0, time=i)
        probs = classes.probs[:, classes.contextual_tokens]
        f = theory.directions(probs, record["attention_logits"].values[0])
        measured = theory.measured_gradient(f, record["decoder"].values, next_token=classes.next_token)
        ids = np.searchsorted(classes.contextual_tokens, classes.distinct_tokens(0))
        np.testing.assert_allclose(measured.token_drive[0, ids], reduced.distinct_drive[i], rtol=1e-5)
        ids = np.searchsorted(classes.contextual_tokens, classes.common_tokens)
        np.testing.assert_allclose(measured.token_drive[0, ids], reduced.common_drive[i], rtol=1e-5)
        np.testing.assert_allclose(measured.logit_gain, reduced.logit_gain[i], rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_two_parts_of_the_energy_law_make_the_gradient(seed: int) -> None:
    """dz/dt = gained - shared for any Y; and what is gained is the growth of the rows' energy under true SGD."""
    classes = ss.syn_medium(num_query=3)
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(classes.vocab_size, classes.vocab_size))
    z = rng.normal(size=(3, classes.vocab_size))
    f = theory.directions(classes.probs, z[np.searchsorted(classes.queries, classes.query)])
    measured = theory.measured_gradient(f, y, next_token=classes.next_token)
    gained, shared = theory.energy_velocity(f, measured, query=classes.query, weights=classes.weights, lr_z=1.0)
    dy, dz = population_gradients(classes, y, z)
    np.testing.assert_allclose(gained - shared, dz, atol=1e-12 * np.abs(dz).max())
    np.testing.assert_allclose(gained.sum(axis=0), (y * dy).sum(axis=1), atol=1e-12 * np.abs(dy).max())


def test_the_energy_law_integrates_along_a_trajectory() -> None:
    """z_l(t) = (eta_Z/eta_Y) |Y_l|^2/2 - eta_Z int sum_n P(n) f_nl^2 (w_n . r_n) dt, by Simpson's rule."""
    from scipy.integrate import simpson

    classes = ss.synthetic(num_query=1, next_per_query=3, num_common=2, num_distinct=3)
    times = np.linspace(0, 40, 401)
    rates = {"lr_y": 0.7, "lr_z": 0.4}
    ds = ss.measure.one_head(
        ss.flow(classes, **rates, times=times, record=("attention_logits", "decoder"), rtol=1e-10, atol=1e-12)
    )
    probs = classes.probs[:, classes.contextual_tokens]
    share = []
    for i in range(len(times)):
        f = theory.directions(probs, ds["attention_logits"].values[0, i, 0])
        measured = theory.measured_gradient(f, ds["decoder"].values[0, i], next_token=classes.next_token)
        share.append((f**2 * measured.logit_gain[:, None]).sum(axis=0) / 3)
    energy = (ds["decoder"].values[0] ** 2).sum(axis=2) / 2
    taken = simpson(share, times, axis=0)
    predicted = rates["lr_z"] / rates["lr_y"] * energy[-1] - rates["lr_z"] * taken
    np.testing.assert_allclose(ds["attention_logits"].values[0, -1, 0], predicted, atol=1e-6)


def test_assumptions_speak_in_numbers() -> None:
    assumptions = theory.assumptions(ss.syn_small(), lr_y=1.0, lr_z=1.0, seq_len=128, momentum=0.9)
    assert not assumptions
    assert {assumption.id for assumption in assumptions.broken} >= {
        "long_sequences",
        "fast_decoder",
        "weak_overlap",
        "many_tokens",
        "decoder_rate",
        "plain_sgd",
    }
    f = theory.directions(ss.syn_small().probs)
    assert assumptions["weak_overlap"].value == pytest.approx(f[0] @ f[1])
    assert "T = 128" in assumptions["long_sequences"].advice
    good = ss.single_common(num_classes=3, num_distinct=6, vocab_size=4000)
    met = theory.assumptions(good, lr_y=0.5, lr_z=0.01)
    assert met["fast_decoder"].met
    assert met["large_vocabulary"].met
    assert math.isinf(met["long_sequences"].value)
    assert str(met).count("\n") + 1 == len(met.all)
    with pytest.raises(InputError, match="seq_len"):
        theory.assumptions(good, lr_y=0.5, lr_z=0.01, seq_len=1.5)


def test_bad_arguments_are_named() -> None:
    good = {"distinct_probs": [0.5], "common_probs": [0.5], "num_classes": 4, "vocab_size": 60, "lr_y": 1, "lr_z": 1}
    for wrong, message in (
        ({"vocab_size": 4}, "more tokens than the 4 next tokens"),
        ({"classes_per_query": 3}, "must divide"),
        ({"decoder_gradient": "tru"}, "did you mean 'true'"),
        ({"lr_y": 0}, "lr_y holds 0"),
    ):
        with pytest.raises(InputError, match=message):
            theory.symmetric_flow([1.0], **{**good, **wrong})
    with pytest.raises(InputError, match="increasing"):
        theory.symmetric_flow([2.0, 1.0], **good)
