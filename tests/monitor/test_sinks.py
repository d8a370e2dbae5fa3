"""Sinks: what dashboards hold afterwards, through their packages or a stand-in that keeps rows by the same rules."""

from __future__ import annotations

import gc
import sys
import threading
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.monitor import sinks
from tests.monitor.given_attention import even, first, missing, snapshot
from tests.monitor.small_models import GPT, ids

GIVEN = {"entropy/layer_00": 0.5, "heads/sink": 2.0}


def test_numbers_of_a_snapshot() -> None:
    """Mean, maximum and minimum over the heads that a layer has, and how many heads each verdict holds of."""
    weights = np.stack([np.stack([even(8), first(8, 0.9)]), np.stack([even(8), even(8)])])
    once = snapshot(0, weights)
    once["entropy"][0, 1, 1] = np.nan  # a layer with fewer heads
    numbers = sinks.head_metrics(once)
    assert numbers["entropy/layer_00"] == pytest.approx(float(once["entropy"][0, 0].mean()))
    assert numbers["entropy/layer_00_max"] == float(once["entropy"][0, 0].max())
    assert numbers["entropy/layer_00_min"] == float(once["entropy"][0, 0].min())
    assert numbers["entropy/layer_01"] == pytest.approx(float(once["entropy"][0, 1, 0]))
    assert numbers["heads/sink"] == 1
    assert numbers["heads/collapsed"] == 0
    assert "moved/layer_00" not in numbers  # nothing is before the first snapshot
    assert "heads/frozen" not in numbers
    assert "heads/collapsed" not in sinks.head_metrics(once.drop_vars("top_1"))  # it cannot be judged
    assert sinks.head_metrics(missing(once, 10, "out of memory")) == {"snapshots/missing": 1}


def follow(sink: sinks.Sink) -> dict[int, dict[str, float]]:
    """Three snapshots at a model whose second head sinks; what a dashboard should hold of them, from the dataset."""
    torch.manual_seed(3)
    model: Any = GPT()
    watch = ss.watch(model, probe=ids(), every=10, sinks=[sink], errors="raise")
    for _ in range(2):
        with torch.no_grad():
            model.blocks[0].attn.c_attn.weight.mul_(2.0)
        for _ in range(10):
            watch.step()
    expected: dict[int, dict[str, float]] = {}
    for i, step in enumerate(watch.dataset["step"].values.tolist()):
        told = sinks.head_metrics(watch.dataset.isel(step=slice(i + 1)))
        expected[step] = {f"attention/{name}": value for name, value in told.items()}
    assert list(expected) == [0, 10, 20]
    return expected


def same(stored: dict[int, dict[str, float]], expected: dict[int, dict[str, float]], rtol: float = 1e-12) -> bool:
    return stored.keys() == expected.keys() and all(
        stored[step] == pytest.approx(expected[step], rel=rtol, abs=0) for step in expected
    )


def test_tensorboard(tmp_path: Path) -> None:
    """It stores float32, and its thread ends with the sink."""
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    threads = threading.active_count()
    expected = follow(sinks.tensorboard(tmp_path))
    gc.collect()
    assert threading.active_count() <= threads
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    stored: dict[int, dict[str, float]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            stored.setdefault(event.step, {})[tag] = event.value
    assert same(stored, expected, 1e-7)


class WandbRun:
    """A run that keeps rows as Weights & Biases does: steps only grow, and what comes too late is dropped."""

    def __init__(self) -> None:
        self.settings = types.SimpleNamespace(mode="offline")
        self.metrics: list[tuple[str, str]] = []
        self.step, self._row, self._rows = 0, dict[str, float](), list[dict[str, float]]()

    def define_metric(self, name: str, step_metric: str) -> None:
        self.metrics.append((name, step_metric))

    def log(self, data: dict[str, float], step: int | None = None, commit: bool | None = None) -> None:
        if step is not None and step < self.step:
            return
        if step is not None and step > self.step:
            self._close(step)
        self._row |= data
        if commit or (step is None and commit is None):
            self._close(self.step + 1)

    def _close(self, step: int) -> None:
        if self._row:
            self._rows.append({"_step": self.step, **self._row})
        self.step, self._row = step, {}

    def finish(self) -> list[dict[str, float]]:
        self._close(self.step)
        return self._rows


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stand-in for the package, without a run."""
    package: Any = types.ModuleType("wandb")
    package.run = None
    monkeypatch.setitem(sys.modules, "wandb", package)
    return package


def test_wandb_holds_every_snapshot(wandb: Any) -> None:
    """Also where the loop logs nothing itself, and with an axis of its own."""
    wandb.run = WandbRun()
    expected = follow(sinks.wandb())
    stored = {row.pop("attention/step"): row for row in wandb.run.finish()}
    assert [row.pop("_step") for row in stored.values()] == [0, 1, 2]
    assert same(stored, expected)


def test_wandb_leaves_the_rows_of_the_loop_alone(wandb: Any) -> None:
    """The run counts steps as without a watch, and keeps what is logged at the same step after a snapshot."""
    for counted in (True, False):
        wandb.run = run = WandbRun()
        sink = sinks.wandb()
        for step in range(5, 9):
            at = {} if counted else {"step": step}
            if not counted:
                run.log({"loss": step}, **at)
            if step != 6:
                sink(step, {"a": step})
            run.log({"accuracy": step}, **at)
        rows = run.finish()
        assert [row["_step"] for row in rows] == ([0, 1, 2, 3] if counted else [5, 6, 7, 8])
        assert [row["accuracy"] for row in rows] == [5, 6, 7, 8]
        assert [row.get("attention/a") for row in rows] == [5, None, 7, 8]
        assert [row.get("attention/step") for row in rows] == [5, None, 7, 8]


def test_wandb_follows_the_current_run(wandb: Any) -> None:
    sink = sinks.wandb(prefix="a/")
    with pytest.raises(ss.InputError, match=r"no run: call wandb.init"):
        sink(0, GIVEN)
    for mode in ("offline", "shared"):
        wandb.run = WandbRun()
        wandb.run.settings.mode = mode
        sink(0, GIVEN)
        assert wandb.run.metrics == [("a/*", "a/step")]
        assert wandb.run.finish() == [{"_step": 0, "a/step": 0, "a/entropy/layer_00": 0.5, "a/heads/sink": 2.0}]


def test_calls_of_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    package = types.SimpleNamespace(log_metrics=lambda *given, **more: calls.append((*given, more)))
    monkeypatch.setitem(sys.modules, "mlflow", package)
    package.active_run = lambda: "a run"
    sinks.mlflow(prefix="")(50, GIVEN)
    package.active_run = lambda: None
    with pytest.raises(ss.InputError, match=r"no active run: call mlflow.start_run\(\) first"):
        sinks.mlflow()(50, GIVEN)
    sinks.mlflow("7", prefix="")(50, GIVEN)
    assert calls == [(GIVEN, {"step": 50, "run_id": run_id}) for run_id in (None, "7")]


def test_calls_of_trackio(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    package, run = (
        types.SimpleNamespace(log=lambda *given, name=name, **more: calls.append((name, *given, more)))
        for name in ("package", "run")
    )
    monkeypatch.setitem(sys.modules, "trackio", package)
    for sink in (sinks.trackio(prefix="a/"), sinks.trackio(run, prefix="a/")):
        sink(50, GIVEN)
    numbers = {"a/entropy/layer_00": 0.5, "a/heads/sink": 2.0}
    assert calls == [(name, numbers, {"step": 50}) for name in ("package", "run")]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio", "tensorboard"])
def test_a_missing_package_is_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(ss.InputError, match=f"needs {name}, which is not installed here: pip install {name}"):
        sinks.tensorboard(tmp_path) if name == "tensorboard" else getattr(sinks, name)()
