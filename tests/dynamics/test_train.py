"""`train`: what it returns, that a run depends on its seed alone, and that bad input loses nothing."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.dynamics import train as training
from scansnap.storage.folder import StoreLock
from tests.dynamics.test_update_rules import Lion

BASE: dict[str, Any] = {
    "lr_y": 1.0,
    "lr_z": 1.0,
    "steps": 24,
    "batch_size": 16,
    "seq_len": 32,
    "momentum": 0.9,
    "record_every": 4,
}
VARIABLES = ("loss", "accuracy", "attention", "attention_logits", "entropy", "decoder")


def same(first, second) -> bool:
    return all(np.array_equal(first[name], second[name], equal_nan=True) for name in first.data_vars)


def test_shape_and_labels() -> None:
    classes = ss.syn_small()
    ds = ss.train(classes, **{**BASE, "lr_y": [1.0, 2.0], "seeds": [5, 6], "record": VARIABLES, "steps": 10})
    assert ds["step"].values.tolist() == [0, 4, 8, 10]
    assert ds["attention"].dims == ("run", "step", "layer", "head", "class", "token")
    assert ds["attention_logits"].dims == ("run", "step", "layer", "head", "query", "token")
    assert ds["decoder"].dims == ("run", "step", "layer", "head", "token", "output")
    assert ds["layer"].values.tolist() == ds["head"].values.tolist() == [0]
    assert ds["lr_y"].values.tolist() == [1.0, 2.0]
    assert ds["seed"].values.tolist() == [5, 6]
    assert ds["status"].values.tolist() == ["ok", "ok"]
    assert ds["token_kind"].values[[0, 10]].tolist() == ["common", "distinct"]
    assert np.allclose(ds["attention"].sum("token"), 1, atol=1e-6)
    # The start is uniform attention: c_n = P(l|n), and the loss is that of 34 equal guesses.
    assert np.allclose(ds["attention"].isel(run=0, step=0, layer=0, head=0), classes.probs[:, :30], atol=1e-7)
    assert ds["loss"].values[:, 0] == pytest.approx(math.log(34), rel=1e-6)
    weights = np.arange(1, 11) / 55  # the distinct tokens' share of P(l|n), renormalized
    assert ds["entropy"].values[0, 0, 0, 0, 0] == pytest.approx(-(weights * np.log(weights)).sum(), rel=1e-6)
    assert ds.attrs["classes_fingerprint"] == classes.fingerprint


def test_uniform_start_is_uniform() -> None:
    """2,370 entries of Y for one seed: within +-1/sqrt(M), standard deviation 1/sqrt(3M) to 5%; other seeds differ."""
    classes = ss.syn_medium(num_query=3)
    options = {**BASE, "steps": 0, "init": "uniform", "seeds": [0, 1], "dtype": "float64"}
    ds = ss.train(classes, **options, record=VARIABLES)
    bound = 79**-0.5
    for name in ("decoder", "attention_logits"):
        values = ds[name].values[:, 0]
        assert np.abs(values).max() <= bound
        assert values[0].std() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        assert abs(np.corrcoef(values[0].ravel(), values[1].ravel())[0, 1]) < 0.15
    # Y and Z start from streams of their own: no number of one is in the other.
    y, z = ds["decoder"].values[0, 0], ds["attention_logits"].values[0, 0]
    assert not np.isin(z, y).any()


FRESH = ("loss", "fresh_loss", "fresh_accuracy")


@pytest.mark.parametrize(
    "options",
    [
        {"record": FRESH},
        {"record": FRESH, "num_sequences": 5, "batch_size": None},
        {"layers": 2, "num_sequences": 10},
    ],
    ids=str,
)
def test_a_run_does_not_depend_on_its_neighbors(options: dict[str, Any]) -> None:
    options = {**BASE, "init": "uniform", "dtype": "float64", **options}
    together = ss.train(ss.syn_small(), **{**options, "lr_y": [0.3, 1.0, 2.0], "seeds": [9, 7, 8]})
    alone = ss.train(ss.syn_small(), **{**options, "lr_y": 1.0, "seeds": 7})
    for name in alone.data_vars:
        np.testing.assert_allclose(
            together[name].values[1], alone[name].values[0], rtol=1e-12, atol=1e-14, err_msg=str(name)
        )


def test_a_run_does_not_depend_on_those_that_share_its_seed() -> None:
    """Batches of 1,000 are drawn for three steps at a time, once for the runs of a seed; alone they are drawn again."""
    rates, seeds = [0.1 * (1 + i) for i in range(24)], [i % 5 % 2 for i in range(24)]
    options = {**BASE, "steps": 8, "batch_size": 1000, "init": "uniform", "record": VARIABLES}
    together = ss.train(ss.syn_medium(num_query=2), **{**options, "lr_y": rates, "seeds": seeds})
    for r in (0, 1, 11, 23):
        alone = ss.train(ss.syn_medium(num_query=2), **{**options, "lr_y": rates[r], "seeds": seeds[r]})
        for name in alone.data_vars:
            assert np.array_equal(together[name].values[r], alone[name].values[0]), name


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("num_query", [1, 3])
def test_place_and_thread_do_not_matter(dtype: str, num_query: int) -> None:
    """The last of five runs, on whatever thread and wherever its memory lies, has the bits of the same run alone."""
    options = {**BASE, "init": "uniform", "dtype": dtype, "record": VARIABLES}
    classes = ss.syn_medium(num_query=num_query)
    alone = ss.train(classes, **options, seeds=9)
    for _ in range(3):
        together = ss.train(classes, **options, seeds=[1, 2, 3, 4, 9])
        for name in alone.data_vars:
            assert np.array_equal(together[name].values[4], alone[name].values[0]), name


@settings(max_examples=10)
@given(pieces=st.lists(st.integers(1, 9), min_size=1, max_size=6), every=st.integers(1, 24))
def test_neither_chunks_nor_records_change_a_run(pieces: list[int], every: int) -> None:
    classes = ss.syn_medium(num_query=2)  # with one sequence per step most rows are idle at most steps
    options = {**BASE, "batch_size": 1, "record": VARIABLES}
    whole = ss.train(classes, **{**options, "record_every": 24})
    engine_pieces = iter(pieces)
    patch = pytest.MonkeyPatch()
    patch.setattr(training, "FIRST_PIECE", next(engine_pieces))
    patch.setattr(training, "PIECE_SECONDS", -1.0)  # never grows
    try:
        chopped = ss.train(classes, **{**options, "record_every": every})
    finally:
        patch.undo()
    assert same(whole.isel(step=-1), chopped.isel(step=-1))


class Killed(Exception):
    """Stands for a kill: nothing after it runs."""


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 1},
        {"optimizer": "adam", "momentum": None, "lr_y": 0.1, "lr_z": 0.1},
        {"decoder_gradient": "modified", "dtype": "float64"},
        {"num_sequences": 6, "optimizer": "sign_sgd", "momentum": None, "lr_y": 0.05, "lr_z": 0.05},
        {"optimizer": Lion(), "momentum": None, "lr_y": 0.05, "lr_z": 0.05, "heads": 2, "residual": True},
        {"optimizer": Lion(), "momentum": None, "lr_y": 0.05, "lr_z": 0.05, "layers": 2, "record": "attention"},
    ],
    ids=["momentum", "batch 1", "adam", "modified", "fixed set", "own rule", "own rule, layers"],
)
@pytest.mark.parametrize("stop", [3, 8, 17])
def test_killed_and_resumed(tmp_path, monkeypatch, options: dict[str, Any], stop: int) -> None:
    """Killed after update `stop`, between records or on one, and started again: identical to the last bit."""
    arguments = {**BASE, "record": VARIABLES, **options, "init": "uniform", "seeds": [1, 2]}
    expected = ss.train(ss.syn_small(), **arguments)
    path = tmp_path / "run.zarr"
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", -1.0)
    monkeypatch.setattr(training, "FIRST_PIECE", 1)
    monkeypatch.setattr(training, "PIECE_SECONDS", -1.0)
    advance = training._Training._advance

    def mortal(self, record):
        advance(self, record)
        if self._engine.step == stop:
            raise Killed

    monkeypatch.setattr(training._Training, "_advance", mortal)
    with pytest.raises(Killed):
        ss.train(ss.syn_small(), **arguments, store=path)
    with pytest.raises(ss.StoreError, match=rf"unfinished run \({stop} of 24 steps\)"):
        ss.load(path)
    partial = ss.load(path, partial=True)
    assert all(np.isfinite(partial[name].values[:, 0]).all() for name in partial.data_vars)

    started = []

    def watched(self, record):
        started.append(self._engine.step)
        advance(self, record)

    monkeypatch.setattr(training._Training, "_advance", watched)
    resumed = ss.train(ss.syn_small(), **arguments, store=path)
    assert started[0] == stop
    assert same(expected, resumed.load())
    assert resumed["status"].values.tolist() == ["ok", "ok"]
    # A third time it is only read.
    started.clear()
    assert same(expected, ss.train(ss.syn_small(), **arguments, store=path).load())
    assert not started


def test_stored_blocks_are_whole(tmp_path, monkeypatch) -> None:
    from scansnap.results import dataset

    monkeypatch.setattr(dataset, "BLOCK_RECORDS", 3)
    expected = ss.train(ss.syn_small(), **{**BASE, "record_every": 1})
    stored = ss.train(ss.syn_small(), **{**BASE, "record_every": 1}, store=tmp_path / "r.zarr")
    assert same(expected, stored.load())
    assert [p.name for p in tmp_path.iterdir()] == ["r.zarr"]


def test_another_run_is_not_overwritten(tmp_path) -> None:
    path = tmp_path / "run.zarr"
    first = ss.train(ss.syn_small(), **BASE, store=path).load()
    for change, message in [({"steps": 25}, "steps = 24 and not 25"), ({"lr_z": 2.0}, "lr_z")]:
        with pytest.raises(ss.StoreError, match=f"holds another run, with {message}"):
            ss.train(ss.syn_small(), **{**BASE, **change}, store=path)
    with pytest.raises(ss.StoreError, match="holds a run on other data"):
        ss.train(ss.syn_medium(), **BASE, store=path)
    assert same(first, ss.load(path))


@pytest.mark.parametrize("options", [{}, {"decoder_gradient": "modified"}, {"optimizer": "adam", "momentum": None}])
def test_a_diverging_run_is_marked_and_the_others_go_on(options: dict[str, Any]) -> None:
    arguments = {**BASE, "momentum": None, **options, "record_every": 1, "steps": 12}
    rates = [1.0, 1e39, 0.5]  # 1e39 is beyond float32
    ds = ss.train(ss.syn_small(), **{**arguments, "lr_y": rates, "lr_z": rates})
    assert ds["status"].values.tolist() == ["ok", "diverged", "ok"]
    step = int(ds["diverged_step"][1])
    assert 0 < step <= 12
    assert np.isnan(ds["loss"].values[1, step:]).all()
    assert np.isnan(ds["attention"].values[1, step:]).all()
    assert np.isfinite(ds["loss"].values[1, :step]).all()
    alone = ss.train(ss.syn_small(), **{**arguments, "lr_y": 0.5, "lr_z": 0.5})
    assert np.allclose(ds["loss"].values[2], alone["loss"].values[0], rtol=1e-5)
    assert np.isfinite(ds["loss"].values[[0, 2]]).all()


@pytest.mark.parametrize("layer", [{}, {"residual": True, "normalization": "layer", "heads": 2}], ids=str)
def test_a_diverging_run_leaves_nothing_behind(layer: dict[str, Any]) -> None:
    """NaN in whole groups of the last class, then a run that begins with a group of one sequence."""
    even = ss.syn_small()
    classes = ss.SequenceClasses(
        probs=even.probs, query=even.query, next_token=even.next_token, vocab_size=even.vocab_size, weights=[0.1, 0.9]
    )
    options = {**BASE, **layer, "init": "uniform", "batch_size": 17, "record_every": 12}
    rates = [1e39, 1.0] * 24  # 1e39 is beyond float32
    both = ss.train(classes, **{**options, "lr_y": rates, "lr_z": rates, "seeds": [0, 0, 1, 1, 2, 2] * 8})
    assert (both["status"].values[::2] == "diverged").all()
    alone = ss.train(classes, **{**options, "lr_y": 1.0, "lr_z": 1.0, "seeds": [0, 1, 2] * 8})
    assert (both["attention"].values[1::2] == alone["attention"].values).all()


BAD = [
    ({"steps": -1}, "steps is -1"),
    ({"steps": 1.5}, "steps is 1.5"),
    ({"batch_size": 0}, "batch_size is 0"),
    ({"seq_len": 1}, "seq_len is 1"),
    ({"seq_len": "inf"}, "seq_len is 'inf'"),
    ({"seeds": 1.5}, "a seed is 1.5"),
    ({"record": None}, "record is None"),
    ({"steps": 10**12}, "steps is 1000000000000"),
    ({"batch_size": 10**12}, "batch_size is 1000000000000"),
    ({"seq_len": float("nan")}, "seq_len is nan"),
    ({"optimizer": "adm", "momentum": None}, "did you mean 'adam'"),
    ({"optimizer": "adam"}, "momentum belongs to sgd"),
    ({"momentum": 1.0}, "momentum is 1.0"),
    ({"init": "zero"}, "did you mean 'zeros'"),
    ({"init": 3}, "give 'zeros' or 'uniform', or a pair"),
    ({"init": (np.zeros((3, 3)), np.zeros((34, 34)))}, r"init's Y has shape \(3, 3\)"),
    ({"init": (np.full((34, 34), np.nan), np.zeros((34, 34)))}, "init's Y contains NaN"),
    ({"decoder_gradient": "modifed"}, "did you mean 'modified'"),
    ({"dtype": "float16"}, "unknown dtype 'float16'"),
    ({"device": "gpu"}, "unknown device 'gpu'"),
    ({"record": ["los"]}, "did you mean 'loss'"),
    ({"record": []}, r"record is \[\]: give quantities to record, among loss"),
    ({"record_every": 0}, "record_every is 0"),
    ({"lr_y": -1.0}, "lr_y is -1.0"),
    ({"lr_y": float("inf")}, "lr_y is inf"),
    ({"lr_y": "fast"}, "lr_y is 'fast'"),
    ({"lr_y": [1.0, 2.0], "seeds": [1, 2, 3]}, "lr_y has 2, seeds has 3 entries"),
    ({"seeds": -1}, "a seed is -1"),
    ({"seeds": []}, "seeds is empty"),
    ({"seeds": [0.5]}, "a seed is 0.5"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.train(ss.syn_small(), **{**BASE, **change})


@pytest.mark.parametrize("classes", [3, None, np.eye(3)])
def test_classes_must_be_classes(classes: Any) -> None:
    with pytest.raises(ss.InputError, match="and not SequenceClasses"):
        ss.train(classes, **BASE)
    with pytest.raises(ss.InputError, match="and not SequenceClasses"):
        ss.flow(classes, lr_y=1.0, lr_z=1.0, times=[1])


def test_options_are_given_by_name() -> None:
    options = ss.TrainOptions(**BASE)
    assert same(ss.train("syn-small", **vars(options)), ss.train("syn-small", **BASE))
    assert ss.TrainOptions(lr_y=1, lr_z=1, steps=7, record_every=None).record_steps.tolist() == [0, 7]
    for ask, message in [
        (lambda: ss.train("syn-small", options), r"^train takes options by name: give \*\*vars\(options\) in place"),
        (
            lambda: ss.sweep("syn-small", options, lr_z=[1, 2]),
            r"^sweep takes options by name: give \*\*vars\(options\)",
        ),
        (lambda: ss.train("syn-small", lr_y=1.0), r"^lr_z, steps must be given\.$"),
        (lambda: ss.train("syn-small"), r"^lr_y, lr_z, steps must be given\.$"),
        (lambda: ss.train("syn-small", **BASE, stesp=3), "^unknown option 'stesp': did you mean 'steps'"),
        (lambda: ss.flow("syn-small", **vars(options)), "^unknown option 'steps'"),
    ]:
        with pytest.raises(ss.InputError, match=message):
            ask()


def test_given_starts_are_told_apart(tmp_path) -> None:
    """Another start is another run, and a model's parameters can be given as they are."""
    zeros = np.zeros((34, 34))
    path = tmp_path / "run.zarr"
    ss.train(ss.syn_small(), **BASE, init=(zeros, zeros), store=path)
    with pytest.raises(ss.StoreError, match="with init = given"):
        ss.train(ss.syn_small(), **BASE, init=(zeros + 1, zeros), store=path)
    model = ss.RegularTransformer(34, 8).to_yz()
    ds = ss.train(ss.syn_small(), **BASE, init=(model.decoder, model.attention_logits))
    assert np.isfinite(ds["loss"]).all()


def test_two_processes_do_not_write_one_run(tmp_path) -> None:
    path = tmp_path / "run.zarr"
    lock = StoreLock(path)
    lock.acquire()
    with pytest.raises(ss.StoreError, match="this process is writing"):
        ss.train(ss.syn_small(), **BASE, store=path)
    lock.release()
    ss.train(ss.syn_small(), **BASE, store=path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.zarr"]


def test_one_singular_run_does_not_stop_the_others() -> None:
    """Saturated on a common token, a run's directions coincide: it is marked, and the other goes on."""
    size = 34
    attention = np.zeros((2, size, size))
    attention[1, :, 0] = 2000.0
    options = {**BASE, "momentum": None, "decoder_gradient": "modified", "dtype": "float64"}
    ds = ss.train(ss.syn_small(), **options, seeds=[0, 0], init=(np.zeros((2, size, size)), attention))
    assert ds["status"].values.tolist() == ["ok", "diverged"]
    assert np.isfinite(ds["loss"].values[0]).all()


def test_results_too_large_for_memory_are_said(tmp_path) -> None:
    with pytest.raises(ss.InputError, match=r"records of .* need \d+ GiB"):
        ss.train(ss.syn_medium(num_query=10), **{**BASE, "steps": 2 * 10**6, "record_every": 1})
    with pytest.raises(ss.InputError, match=r"more than 10,000,000 records: record less often"):
        ss.train(ss.syn_small(), **{**BASE, "steps": 10**9, "record_every": 1})


def test_bits_do_not_depend_on_who_compiled(tmp_path) -> None:
    """A process that compiles the kernel and one that loads it from the cache give the same bits."""
    code = (
        "import hashlib, scansnap as ss; "
        "ds = ss.train('syn-medium-3', lr_y=2.0, lr_z=1.0, steps=40, momentum=0.9, init='uniform', dtype='float64'); "
        "print(hashlib.sha256(ds['attention_logits'].values.tobytes()).hexdigest())"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    seen = set()
    for compiles in (True, False):
        assert any(tmp_path.rglob("kernel.advance*.nbc")) != compiles
        program = [sys.executable, "-c", code]
        seen.add(subprocess.run(program, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(seen) == 1


def test_no_cuda_is_said() -> None:
    import torch

    if not torch.cuda.is_available():
        with pytest.raises(ss.InputError, match="finds no CUDA device"):
            ss.train(ss.syn_small(), **BASE, device="cuda")
        with pytest.raises(ss.InputError, match="finds no CUDA device"):
            ss.train(ss.syn_small(), **{**BASE, "init": "uniform"}, device="cuda", layers=2)


def test_too_much_memory_is_said_before_it_is_taken() -> None:
    with pytest.raises(ss.InputError, match=r"need \d+ GiB, more than this machine's"):
        ss.train(ss.syn_medium(num_query=10), **{**BASE, "init": "uniform", "seeds": range(10**6)})
