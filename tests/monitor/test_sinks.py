"""Sinks: TensorBoard read back from its files, the others through the package or a module that records its calls."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import scansnap as ss
from scansnap.monitor import sinks
from tests.monitor.looks import even, first, look, missing

GIVEN = {"entropy/layer_00": 0.5, "heads/sink": 2.0}


def test_numbers_of_a_look() -> None:
    """Means over the heads that a layer has, and how many heads each verdict holds of."""
    weights = np.stack([np.stack([even(8), first(8, 0.9)]), np.stack([even(8), even(8)])])
    once = look(0, weights)
    once["entropy"][0, 1, 1] = np.nan  # a layer with fewer heads
    numbers = sinks.numbers(once)
    assert numbers["entropy/layer_00"] == pytest.approx(float(once["entropy"][0, 0].mean()))
    assert numbers["entropy/layer_01"] == pytest.approx(float(once["entropy"][0, 1, 0]))
    assert numbers["heads/sink"] == 1
    assert numbers["heads/collapsed"] == 0
    assert "moved/layer_00" not in numbers  # nothing is before the first look
    assert "heads/frozen" not in numbers
    assert "heads/collapsed" not in sinks.numbers(once.drop_vars("top_1"))  # it cannot be judged
    assert sinks.numbers(missing(once, 10, "out of memory")) == {"looks/missing": 1}


def test_tensorboard_shows_them(tmp_path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = sinks.tensorboard(tmp_path)
    for step in (0, 50):
        sink(step, {name: value + step for name, value in GIVEN.items()})
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"attention/entropy/layer_00", "attention/heads/sink"}
    assert [(e.step, e.value) for e in events.Scalars("attention/heads/sink")] == [(0, 2.0), (50, 52.0)]


class Recorder(types.ModuleType):
    """A package that writes down what it is asked to do."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.calls: list[tuple[str, object, dict[str, object]]] = []
        self.run: Recorder | None = self if name == "wandb" else None

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *words, **options: self.calls.append((name, *words, options))


@pytest.fixture
def recorder(request, monkeypatch) -> Recorder:
    package = Recorder(request.param)
    monkeypatch.setitem(sys.modules, request.param, package)
    return package


@pytest.mark.parametrize("recorder", ["wandb"], indirect=True)
def test_wandb(recorder: Recorder) -> None:
    """The step of a look is an axis of its own, since the loop logs too."""
    sinks.wandb()(50, GIVEN)
    assert recorder.calls == [
        ("define_metric", "attention/*", {"step_metric": "attention/step"}),
        ("log", {"attention/step": 50, "attention/entropy/layer_00": 0.5, "attention/heads/sink": 2.0}, {}),
    ]
    recorder.run = None
    with pytest.raises(ss.InputError, match=r"no run: call wandb.init"):
        sinks.wandb()


@pytest.mark.parametrize("recorder", ["mlflow"], indirect=True)
def test_mlflow(recorder: Recorder) -> None:
    sinks.mlflow(prefix="")(50, GIVEN)
    assert recorder.calls == [("log_metrics", GIVEN, {"step": 50, "run_id": None})]


@pytest.mark.parametrize("recorder", ["trackio"], indirect=True)
def test_trackio(recorder: Recorder) -> None:
    sinks.trackio(prefix="a/")(50, GIVEN)
    assert recorder.calls == [("log", {"a/entropy/layer_00": 0.5, "a/heads/sink": 2.0}, {"step": 50})]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio", "tensorboard"])
def test_a_missing_package_is_a_sentence(name: str, monkeypatch, tmp_path) -> None:
    module = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(ss.InputError, match=f"needs {name}, which is not installed here: pip install {name}"):
        sinks.tensorboard(tmp_path) if name == "tensorboard" else getattr(sinks, name)()
