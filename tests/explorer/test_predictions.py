"""What the explorer says of a run besides its numbers: theory, phases, maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import scansnap as ss
from scansnap import theory
from scansnap.results.story import stories
from scansnap.runtime.snap import find_snap
from tests.explorer.engine import ask, draw_classes, for_engine, needs_node, plain

pytestmark = needs_node

TIMES = [0.0, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5]


def test_theory_is_the_librarys() -> None:
    """Lemma 6's h, Eq. 33's h*, Theorem 4's times and growth factor in both forms, to 1e-9."""
    rng = np.random.default_rng(3)
    settings = []
    for _ in range(50):
        count, distinct = int(rng.integers(2, 12)), int(rng.integers(1, 8))
        size = int(rng.integers(count * (distinct + 1) + 2, 3000))
        classes = ss.single_common(num_classes=count, num_distinct=distinct, vocab_size=size)
        settings.append((classes, {"lr_y": 10 ** rng.uniform(-2, 1), "lr_z": 10 ** rng.uniform(-2, 1)}))
    cases = [{"classes": plain(c), "options": for_engine(**rates), "times": TIMES} for c, rates in settings]
    for (classes, rates), answer in zip(settings, ask("theory", cases), strict=True):
        count, size, times = classes.num_classes, classes.vocab_size, np.array(TIMES)
        sizes: dict[str, Any] = {"vocab_size": size, "num_classes": count, "lr_y": rates["lr_y"]}
        assert answer["scanEnd"] == pytest.approx(theory.scan_end(**sizes), rel=1e-12)
        assert answer["snapStart"] == pytest.approx(theory.snap_start(**sizes), rel=1e-12)
        growth = answer["decoderGrowth"]
        h = theory.decoder_growth(times / count, vocab_size=size, lr_y=rates["lr_y"])
        np.testing.assert_allclose(growth["published"], h, rtol=1e-9)
        steps = theory.decoder_growth_steps(10**4, vocab_size=size, lr_y=rates["lr_y"] / count)
        np.testing.assert_allclose(growth["exact"][:6], steps[times[:6].astype(int)], rtol=1e-9)
        direction = theory.directions(classes.probs)
        overlap = float(theory.overlaps(direction).max())
        share = float(direction[0][classes.distinct_tokens(0)].max()) ** 2
        for form, order, weight in (("published", "published", 1.0), ("exact", "leading", 1 / count)):
            constant = theory.phase_constant(overlap, num_classes=count, form=order)
            bound = theory.growth_bound(times, **sizes, lr_z=rates["lr_z"], constant=constant, form=form)
            expected = theory.growth_factor_bounds(bound, share**0.5, weight=weight).least
            np.testing.assert_allclose(answer["growthFactor"][form], expected, rtol=1e-9)


def test_the_predicted_winner_is_theorem_3s() -> None:
    """From zero and from random starts, and none where two tokens are level."""
    rng = np.random.default_rng(4)
    settings = [
        (draw_classes(rng), str(rng.choice(["zeros", "uniform"])), int(rng.integers(2**53))) for _ in range(100)
    ]
    level = ss.SequenceClasses.from_supports(
        tokens=[[0, 1, 2], [0, 3]], probs=[[0.2, 0.4, 0.4], [0.5, 0.5]], query=[4, 4], next_token=[5, 6], vocab_size=7
    )
    settings.append((level, "zeros", 0))
    cases = [
        {"classes": plain(c), "options": for_engine(init=init, seeds=seed), "times": []} for c, init, seed in settings
    ]
    answers = ask("theory", cases)
    for (classes, init, seed), answer in zip(settings, answers, strict=True):
        start = ss.train(classes, lr_y=1, lr_z=1, steps=0, seeds=seed, init=init, dtype="float64")
        for n, winner in enumerate(answer["predictedWinner"]):
            own = classes.distinct_tokens(n)
            places = np.searchsorted(classes.contextual_tokens, own)
            logits = start["attention_logits"].sel(query=classes.query[n]).values.ravel()[places]
            leader = theory.dominant(classes.probs[n, own], logits)
            assert winner == (None if leader is None else places[leader])
    assert answers[-1]["predictedWinner"] == [None, 2 + 1]
    assert "queries" in answers[0]["why"] or "common tokens" in answers[0]["why"] or "differ" in answers[0]["why"]


def test_a_snap_is_the_librarys() -> None:
    rng = np.random.default_rng(5)
    burst = np.array([0, 0.2, 0.1, *[0.001] * 8, 0.02])  # in a last record that came early, or in time
    series = [(np.append(np.arange(0, 101, 10), last), burst) for last in (104, 105, 110)]
    for _ in range(1000):
        count = int(rng.integers(2, 40))
        steps = np.cumsum(rng.integers(1, 9, count)) if rng.random() < 0.5 else np.arange(count) * 4
        moved = rng.uniform(0, 0.2, count) * np.exp(-rng.uniform(0, 1) * np.arange(count))
        moved[rng.integers(0, count) :] *= rng.choice([1, 0.01, np.nan], p=[0.5, 0.4, 0.1])
        series.append((steps, moved))
    # where attention is after all that moved, some of it back, in half of the cases
    places = [np.cumsum(np.nan_to_num(moved) * rng.choice([1, -1], len(moved), p=[0.8, 0.2])) for _, moved in series]
    patterns = [None if i % 2 else np.stack([place, -place], -1) for i, place in enumerate(places)]
    cases = [
        {
            "steps": steps.tolist(),
            "moved": [None if np.isnan(m) else m for m in moved.tolist()],
            "patterns": None if pattern is None else pattern.tolist(),
        }
        for (steps, moved), pattern in zip(series, patterns, strict=True)
    ]
    statuses = set()
    for case, pattern, answer in zip(series, patterns, ask("snap", cases), strict=True):
        snap = find_snap(*case, pattern)
        assert (answer["step"], answer["status"]) == (snap.step, snap.status)
        if snap.step is not None and pattern is not None:
            assert (answer["until"], answer["since"]) == pytest.approx((snap.until, snap.since), rel=1e-12)
        statuses.add(snap.status)
    assert statuses == {"frozen", "slowed", "not yet", "hardly moved", "too short"}


def test_phases_in_words() -> None:
    """The phases of Syn-Small; when attention slowed and how far it moved since are what the library finds in the same
    records: plain SGD moves on, momentum at larger rates stops."""
    classes = ss.syn_small()
    plain_sgd = {"lr_y": 1.0, "lr_z": 1.0, "batch_size": None, "seq_len": math.inf}
    quick = {**plain_sgd, "lr_y": 5.0, "lr_z": 10.0, "momentum": 0.9}
    runs = [(plain_sgd, steps) for steps in (2, 20, 80, 120, 300, 1000)] + [(quick, 100), (quick, 300)]
    answers = ask("phase", [{"classes": plain(classes), "options": for_engine(**o), "steps": s} for o, s in runs])
    assert answers[0] == {"name": "start", "words": "start: attention has hardly moved"}
    assert answers[1] == {"name": "scanning", "words": "scanning: common tokens are losing"}
    assert answers[2] == {"name": "snapping", "words": "snapping: attention moves at 12% of its peak speed"}
    for (options, count), answer in zip(runs, answers, strict=True):
        gap = 2 ** max(0, int(math.log2(count)) - 7)
        result = ss.train(classes, **options, steps=count // gap * gap, record_every=gap, dtype="float64")
        story = stories(result)[0]
        assert answer.get("step") == story.snap_step
        if story.snap_step is not None:
            name = {"frozen": "snapped", "slowed": "slowed"}[story.status]
            when = f"{story.snap_step:g} (checked every {gap} steps)" if gap > 1 else f"{story.snap_step:g}"
            words = f"{'by' if gap > 1 else 'at'} step {when}, {story.moved_since:.0%} of attention moved since"
            assert (answer["name"], answer["words"]) == (name, f"{name} {words}")
    assert [answer["name"] for answer in answers[-4:]] == ["slowed", "slowed", "snapped", "snapped"]


def test_divergence_is_the_librarys() -> None:
    """From the step at which the library's loss is no number any more, the engine's frames hold none."""
    classes = ss.syn_medium(num_query=1)
    options = {"lr_y": 1e308, "lr_z": 1.0, "momentum": 0.9, "init": "uniform", "batch_size": None, "seq_len": math.inf}
    case = {"classes": plain(classes), "options": for_engine(**options)}
    frames = ask("train", [{**case, "steps": list(range(41))}])[0]
    lost = np.isnan(ss.train(classes, **options, steps=40, dtype="float64")["loss"].values.ravel())
    assert lost.any()
    assert [frame["loss"] is None for frame in frames] == lost.tolist()
    assert ask("phase", [{**case, "steps": 40}])[0]["name"] == "diverged"


def test_a_map_is_the_librarys() -> None:
    """Entropy, winner's share and snap over (eta_Y, eta_Z), and over (eta_Y/eta_Z, K) with classes of one query."""
    rates, ratios, counts, steps = [0.5, 2.0], [1.0, 10.0], [2, 5], 400
    classes = ss.syn_small()
    axes = {"lr_y,lr_z": (rates, rates), "ratio,K": (ratios, counts)}
    cases = [
        {
            "classes": plain(classes),
            "options": for_engine(lr_z=0.5),
            "map": {"axes": name, "quantity": quantity, "x": x, "y": y, "steps": steps},
        }
        for name, (x, y) in axes.items()
        for quantity in ("entropy", "winner", "snap")
    ]
    answers = iter(ask("map", cases))
    options: dict[str, Any] = {"batch_size": None, "seq_len": math.inf, "steps": steps, "dtype": "float64"}
    for name, (x, y) in axes.items():
        entropy, winner, snap = (np.array(next(answers), float) for _ in range(3))
        for row, column in np.ndindex(2, 2):
            size = max(classes.vocab_size, 10 + 11 * y[row] + 1)
            cell = ss.synthetic(num_query=1, next_per_query=y[row], vocab_size=size) if name == "ratio,K" else classes
            lr_y, lr_z = (x[column] * 0.5, 0.5) if name == "ratio,K" else (x[column], y[row])
            result = ss.train(cell, lr_y=lr_y, lr_z=lr_z, **options, record_every=4)
            snaps = ss.measure.snaps(result)["snap_step"].mean().item()
            last = result.isel(step=-1)
            assert entropy[row, column] == pytest.approx(last["entropy"].mean().item(), rel=1e-9)
            assert winner[row, column] == pytest.approx(ss.measure.top_k_mass(last).mean().item(), rel=1e-9)
            assert snap[row, column] == pytest.approx(snaps, nan_ok=True)
