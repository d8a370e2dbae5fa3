"""When a pattern counts as frozen."""

from __future__ import annotations

import numpy as np
import pytest

import scansnap as ss
from scansnap.runtime.snap import MAX_LATER_MOVEMENT, QUIET_RATE, find_snap, late_share

pytestmark = pytest.mark.rounding

STEPS = np.arange(0, 2100, 100)


def moved(*values: float) -> np.ndarray:
    """Shares moved at each record: the first is not read, the last value stays."""
    result = np.full(len(STEPS), values[-1])
    result[0] = np.nan
    result[1 : len(values) + 1] = values
    return result


def test_a_pattern_that_stops_is_frozen_from_its_last_move() -> None:
    snap = find_snap(STEPS, moved(0.2, 0.4, 0.3, 0.1, 0.01))
    assert (snap.step, snap.status, snap.peak_step) == (400, "frozen", 200)
    assert snap.peak_rate == pytest.approx(0.004)
    assert snap.later_records == 16
    assert str(snap) == (
        "frozen at step 400: attention moved fastest around step 200, at 0.004 per step; over the next 16 records it "
        "moved at most 2% as fast"
    )


def test_one_late_move_undoes_a_snap() -> None:
    values = moved(0.2, 0.4, 0.01)
    values[-2] = 0.1
    snap = find_snap(STEPS, values)
    assert (snap.step, snap.status) == (None, "not yet")


def test_a_slow_decline_is_not_yet_a_snap() -> None:
    snap = find_snap(STEPS, np.append(np.nan, 0.4 / np.arange(1, 21) ** 0.5))
    assert snap.status == "not yet"
    assert "at the end it still moves 22% as fast; a snap needs at most 10%" in str(snap)


def test_a_pattern_must_be_seen_at_rest_for_long_enough() -> None:
    still = moved(*[0.3] * 16, 0.001)  # the last four records, from step 1600: exactly a fifth
    assert find_snap(STEPS, still).step == 1600
    brief = find_snap(STEPS, moved(*[0.3] * 17, 0.001))
    assert brief.status == "not yet"
    assert str(brief).endswith("at most 10% as fast over the last 15% of the steps only; a snap needs 20%")
    assert str(find_snap(STEPS, moved(*[0.3] * 18, 0.001))).endswith("for the last 2 records only; a snap needs 3")
    assert str(find_snap(STEPS, moved(*[0.3] * 19, 0.001))).endswith("for the last record only; a snap needs 3")
    assert str(find_snap(STEPS[:4], moved(0.3, 0.001, 0.001)[:4])).startswith("too short to tell: 3 changes")
    assert find_snap(STEPS[:1], [np.nan]).status == "too short"


def test_rates_count_and_not_gaps() -> None:
    """The same pattern, recorded less often after its snap, has moved more between records, but not faster."""
    steps = np.array([0, 10, 20, 30, 1030, 2030, 3030, 4030])
    snap = find_snap(steps, [np.nan, 0.3, 0.4, 0.2, 0.3, 0.3, 0.3, 0.3])
    assert snap.step == 30


def test_a_last_record_that_came_early_does_not_undo_a_snap() -> None:
    """Hopping attention moves as far in 39 steps as in 184, which as a rate would be five times as fast."""
    steps = np.append(np.arange(0, 2945, 184), 2983)
    values = np.array([np.nan, 0.5, 0.5, 0.4, 0.2] + [0.045] * 13)
    assert len(steps) == len(values)
    assert find_snap(steps[:-1], values[:-1]).step == find_snap(steps, values).step == 736
    values[8:] = 0.2
    assert find_snap(steps, values).status == "not yet"
    assert find_snap(steps, values).later_rate == 0.2 / 184


@pytest.mark.parametrize(("last", "status"), [(1950, "not yet"), (1949, "frozen")])
def test_a_last_record_counts_from_half_an_interval_on(last: int, status: str) -> None:
    steps = np.append(STEPS[:20], last)
    values = moved(0.2, 0.4, 0.01)
    values[-1] = 0.1
    assert find_snap(steps, values).status == status


def test_the_first_record_after_a_snap_is_after_it() -> None:
    """It goes further than any before it, and is the fastest of those that are quiet."""
    place = np.array([0, 0.2, 0.4, 0.419, *[0.41] * 17])
    snap = find_snap(STEPS, np.append(np.nan, np.abs(np.diff(place))), np.stack([place, 1 - place], -1))
    assert (snap.step, snap.until, snap.since) == (200, pytest.approx(0.4), pytest.approx(0.019))
    assert snap.later_rate == pytest.approx(0.00019)


def test_what_never_moved_has_not_frozen() -> None:
    assert find_snap(STEPS, moved(0.01, 0.0005)).status == "hardly moved"


def test_records_that_a_diverged_run_never_made_are_left_out() -> None:
    values = moved(0.2, 0.4, 0.01)
    values[15:] = np.nan
    assert find_snap(STEPS, values).step == 200


def test_a_pattern_stays_if_it_moves_little_after_its_snap() -> None:
    """The limit, from both sides: a way of 0.4, then steps of a fiftieth of the peak, forward or back."""
    for later, status in ((0.0049, "frozen"), (0.0051, "slowed"), (-0.0049, "frozen"), (-0.0051, "slowed")):
        place = np.cumsum([0, 0.2, 0.2, *[0] * 2, *[later] * 16])
        patterns = np.stack([place, 1 - place], -1)
        snap = find_snap(STEPS, np.append(np.nan, np.abs(np.diff(place))), patterns)
        assert (snap.step, snap.status) == (200, status)
        assert (snap.until, snap.since) == pytest.approx((0.4, 16 * abs(later)))
    assert str(snap).endswith("it moved at most 3% as fast; 8.2% of it moved after that, 40.0% before")


def test_declines_that_stop_and_do_not_stop() -> None:
    """An exponential decline leaves a ninth for after its snap; one like 1/t has no end."""
    times = np.arange(1.0, 2001)
    left = []
    for rates, status in ((np.exp(-times / 50), "frozen"), (1 / (9 + times), "slowed")):
        place = np.cumsum(rates) / rates.sum()
        snap = find_snap(times, np.diff(place, prepend=place[0]), np.stack([place, 1 - place], -1))
        assert snap.status == status
        left.append(snap.since / snap.until)
    assert left[0] == pytest.approx(1 / 9, rel=0.05)
    assert left[1] > 1


def test_momentum_throws_attention_too_far_and_it_slides_back() -> None:
    """The README's classes without noise: after the same snap attention moves on for thousands of updates."""
    probs = [[0.4, 0.3, 0.2, 0.1, 0, 0, 0, 0, 0], [0.4, 0.3, 0, 0, 0.2, 0.1, 0, 0, 0]]
    pets = ss.SequenceClasses(probs=probs, query=[6, 6], next_token=[7, 8], vocab_size=9)
    run = ss.train(pets, lr_y=1, lr_z=1, momentum=0.9, steps=2000, batch_size=None, seq_len=np.inf)
    early, late = (ss.measure.snaps(run.sel(step=slice(steps))).isel(run=0, layer=0, head=0) for steps in (200, 2000))
    assert (early["snap_step"].values == late["snap_step"].values).all()
    assert set(early["snap_status"].values) == {"frozen"}
    assert set(late["snap_status"].values) == {"slowed"}
    assert (late["moved_since"] > 0.15).all()


def test_times_of_a_flow_are_times() -> None:
    flow = ss.flow(ss.single_common(), lr_y=0.5, lr_z=0.05, times=[0.1, 0.3, 0.5, 0.9, 1.5, 10, 100, 1e15])
    result = ss.measure.snaps(flow)
    expected = float(np.nanmax(ss.measure.rate_of_change(flow).isel(run=0, layer=0, head=0, **{"class": 0})))
    assert float(result["peak_rate"].values[0, 0, 0, 0]) == pytest.approx(expected, rel=1e-9)


def test_synthetic_runs_have_snaps_too() -> None:
    run = ss.train(ss.syn_small(), lr_y=10.0, lr_z=1.0, steps=100, momentum=0.9, record_every=2, seq_len=128)
    result = ss.measure.snaps(run)
    assert result["snap_step"].dims == ("run", "layer", "head", "class")
    assert set(result["snap_status"].values.ravel()) <= {"frozen", "not yet"}
    rates = ss.measure.rate_of_change(run)
    for c in range(2):
        single = find_snap(run["step"].values, rates.values[0, :, 0, 0, c] * 2, run["attention"].values[0, :, 0, 0, c])
        assert str(result["evidence"].values[0, 0, 0, c]) == str(single)
        assert float(result["moved_since"].values[0, 0, 0, c]) == single.since < MAX_LATER_MOVEMENT * single.until


def test_late_change_is_small_exactly_where_a_pattern_is_frozen() -> None:
    """In 2,000 drawn runs with even and with falling intervals, of which some freeze."""
    rng = np.random.default_rng(0)
    verdicts = []
    for _ in range(2000):
        records = np.append(0.0, np.cumsum(rng.choice([[1.0] * 30, np.linspace(1, 0.1, 30)])))
        rates = 10 ** rng.uniform(-3, 0, 31)
        rates[rng.integers(15, 31) :] *= 10 ** rng.uniform(-2, 0)
        values = rates * np.diff(records, prepend=0.0)
        verdicts.append((find_snap(records, values).status == "frozen", late_share(records, values) <= QUIET_RATE))
    frozen, late = np.array(verdicts).T
    assert 100 < frozen.sum() < 1900
    assert (frozen == late).all()
    assert np.isnan(late_share([0, 1, 2, 3], [0.0, 0.1, 0.1, 0.1]))
    assert late_share(range(10), np.zeros(10)) == 0.0
