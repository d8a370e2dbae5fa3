"""A system written in one file, without touching the package: trained, integrated, swept, stored, resumed, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import ArrayLike
from torch import Tensor

import scansnap as ss
from scansnap.validation.options import option, options
from tests.cli.test_cli import run

pytestmark = pytest.mark.rounding


@ss.quantity("token", long_name="attention")
def attention(now: ss.State) -> ArrayLike:
    weights = np.exp(now.parameters["z"])
    return weights / weights.sum(-1, keepdims=True)


@ss.quantity("token", long_name="z - u^2 / 2")
def conserved(now: ss.State) -> ArrayLike:
    return now.parameters["z"] - now.parameters["u"] ** 2 / 2


@options
class Product(ss.System):
    """f = sum_l u_l exp(z_l) x_l fits a target by squared error: z - u^2/2 does not change along the flow."""

    quantities = (attention,)
    invariants = (conserved,)
    tokens: int = option("Tokens.", default=3, least=1)

    @property
    def blocks(self) -> Mapping[str, ss.Block]:
        return {"u": ss.Block("lr_u", ("token",)), "z": ss.Block("lr_z", ("token",))}

    @property
    def coords(self) -> Mapping[str, Sequence[Any]]:
        return {"token": [f"token {i}" for i in range(self.tokens)]}

    def start(self, seeds: Any) -> dict[str, Any]:
        draws = [np.random.default_rng(int(seed)) for seed in seeds]
        return {
            "u": np.stack([g.normal(size=self.tokens) / 4 for g in draws]),
            "z": np.zeros((len(seeds), self.tokens)),
        }

    def data(self, seeds: Any, step: int | None) -> dict[str, Any]:
        return {"x": np.stack([np.random.default_rng([int(s), 1]).uniform(0.2, 1, self.tokens) for s in seeds])}

    def gradient(
        self, parameters: Mapping[str, Tensor], data: Mapping[str, Tensor]
    ) -> tuple[dict[str, Tensor], Tensor]:
        u, weights = parameters["u"], torch.exp(parameters["z"]) * data["x"]
        error = 1 - (u * weights).sum(-1, keepdim=True)
        return {"u": error * weights, "z": error * u * weights}, (error**2).sum(-1) / 2


OPTIONS: dict[str, Any] = {"lr_u": 0.2, "lr_z": 0.2}


def test_training_is_gradient_descent() -> None:
    run = ss.train(
        Product(), **OPTIONS, steps=20, seeds=range(3), dtype="float64", record=("loss", "u", "z", "attention")
    )
    system, seeds = Product(), np.arange(3, dtype=np.uint64)
    parameters = {name: torch.as_tensor(v).requires_grad_() for name, v in system.start(seeds).items()}
    data = {name: torch.as_tensor(v) for name, v in system.data(seeds, None).items()}
    for step in range(21):
        loss = system.gradient(parameters, data)[1]
        np.testing.assert_allclose(run["loss"][:, step], loss.detach(), rtol=1e-12, atol=1e-16)
        for name, slope in zip(parameters, torch.autograd.grad(loss.sum(), list(parameters.values())), strict=True):
            np.testing.assert_allclose(run[name][:, step], parameters[name].detach(), rtol=1e-12)
            parameters[name] = (parameters[name] - 0.2 * slope).detach().requires_grad_()
    assert run["attention"].dims == ("run", "step", "token")
    assert run["token"].values.tolist() == ["token 0", "token 1", "token 2"]
    np.testing.assert_allclose(run["attention"].sum("token"), 1)


def test_the_flow_is_the_limit_of_small_steps_and_keeps_the_invariant() -> None:
    flow = ss.flow(Product(), **OPTIONS, times=[1, 10, 1e12], record=("loss", "u", "conserved"), seeds=range(2))
    euler = [ss.train(Product(), lr_u=0.2 / n, lr_z=0.2 / n, steps=10 * n, seeds=range(2), dtype="float64",
                      record=("u",), record_every=None)["u"].values[:, -1] for n in (100, 200)]  # fmt: skip
    np.testing.assert_allclose(2 * euler[1] - euler[0], flow["u"].sel(time=10), atol=1e-6)
    start = ss.flow(Product(), **OPTIONS, times=[0], record=("conserved",), seeds=range(2))["conserved"].values
    np.testing.assert_allclose(flow["conserved"], start.repeat(3, axis=1), atol=1e-7)
    assert float(flow["loss"].isel(time=-1).max()) < 1e-12


@dataclass(frozen=True, kw_only=True)
class Several(Product):
    """The same for five inputs at once, which no u and z fit: at the minimum the gradient is rounding errors."""

    def data(self, seeds: Any, step: int | None) -> dict[str, Any]:
        return {"x": np.stack([np.random.default_rng([int(s), 1]).uniform(0.2, 1, (5, self.tokens)) for s in seeds])}

    def gradient(self, parameters: Any, data: Any) -> Any:
        u, weights = parameters["u"], torch.exp(parameters["z"])[:, None] * data["x"]
        error = 1 - (u[:, None] * weights).sum(-1, keepdim=True)
        moved = (error * weights).sum(1)
        return {"u": moved, "z": u * moved}, (error**2).sum((1, 2)) / 2


def test_a_flow_that_settles_rests_there() -> None:
    """Beyond, slopes are rounding errors times t: without rest it takes minutes or ends, and the invariant drifts."""
    flow = ss.flow(Several(), **OPTIONS, times=[0, 1e6, 1e60], record=("loss", "conserved"), seeds=range(3))
    assert (flow["status"] == "ok").all()
    np.testing.assert_allclose(flow["loss"][:, 2], flow["loss"][:, 1], rtol=1e-12)
    np.testing.assert_allclose(flow["conserved"], flow["conserved"][:, :1] * np.ones((3, 1)), atol=1e-7)


def test_rates_of_blocks_and_optimizers() -> None:
    frozen = ss.train(Product(), lr_u=0.1, lr_z=0.0, steps=5, optimizer="adam", record=("z", "u"))
    assert not frozen["z"].values.any()
    assert np.ptp(frozen["u"].values[0, :, 0]) > 0.1
    still = ss.flow(Product(), lr_u=0.1, lr_z=0.0, times=[1, 100], record=("z", "loss"))
    assert not still["z"].values.any()


def test_sweep_store_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: dict[str, Any] = {"lr_u": [0.1, 0.2], "lr_z": 0.1, "seeds": range(3), "steps": 30}
    grid = ss.sweep(Product(), **arguments, momentum=[0, 0.5])
    assert dict(grid["loss"].sizes) == {"momentum": 2, "lr_z": 1, "lr_u": 2, "seed": 3, "step": 2}
    alone = ss.train(Product(), lr_u=0.2, lr_z=0.1, seeds=2, steps=30, momentum=0.5)
    np.testing.assert_array_equal(grid["loss"].sel(momentum=0.5, lr_u=0.2, lr_z=0.1, seed=2)[-1], alone["loss"][0, -1])
    by_system = ss.sweep({"three": Product(), "five": Product(tokens=5)}, **arguments)
    assert by_system["loss"].sel(system="five", lr_u=0.1, lr_z=0.1).sizes == {"seed": 3, "step": 2}
    flows = ss.sweep(Product(), lr_u=[0.1, 0.2], lr_z=0.1, times=[1, 10], store=tmp_path / "flows.zarr")
    assert ss.load(tmp_path / "flows.zarr").equals(flows)

    whole = ss.train(Product(), **OPTIONS, steps=40)
    monkeypatch.setattr("scansnap.dynamics.train.CHECKPOINT_SECONDS", -1.0)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("scansnap.results.dataset.Records.finish", stop)
        with pytest.raises(KeyboardInterrupt):
            ss.train(Product(), **OPTIONS, steps=40, store=tmp_path / "run.zarr")
    ss.train(Product(), **OPTIONS, steps=40, store=tmp_path / "run.zarr")
    xr_loss = ss.load(tmp_path / "run.zarr")["loss"].values
    np.testing.assert_array_equal(xr_loss, whole["loss"].values)
    with pytest.raises(ss.StoreError, match=r"run\.zarr"):
        ss.train(Product(tokens=4), **OPTIONS, steps=40, store=tmp_path / "run.zarr")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 1.0}, "lr"),
        ({"lr_u": 1.0}, "lr_z must be given"),
        ({**OPTIONS, "record": "entropy"}, "entropy"),
        ({**OPTIONS, "batch_size": 8}, "batch_size"),
    ],
)
def test_options_that_the_system_does_not_have_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ss.InputError, match=message):
        ss.train(Product(), **options, steps=2)


def test_parts_that_do_not_fit_are_refused() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong(Product):
        def start(self, seeds: Any) -> dict[str, Any]:
            return {"u": np.zeros((len(seeds), self.tokens + 1)), "z": np.zeros((len(seeds), self.tokens))}

    with pytest.raises(ss.InputError, match="'u' of shape"):
        ss.train(Wrong(), **OPTIONS, steps=1)

    @dataclass(frozen=True, kw_only=True)
    class Mixed(Product):
        def gradient(self, parameters: Any, data: Any) -> Any:
            gradient, loss = super().gradient(parameters, data)
            return {**gradient, "z": gradient["z"].sum(-1)}, loss

    with pytest.raises(ss.InputError, match=r"'z' of shape \(2,\) for two runs: give \(2, 3\)"):
        ss.flow(Mixed(), **OPTIONS, times=[1])
    with pytest.raises(ss.InputError, match="tokens"):
        Product(tokens=0)

    @dataclass(frozen=True, kw_only=True)
    class Named(Product):
        invariants = ("conserved",)  # type: ignore[assignment]

    with pytest.raises(ss.InputError, match=r"Named.invariants is \('conserved',\): give a tuple of quantities"):
        ss.verify(system=Named())


def test_verify_checks_the_gradient_and_the_invariants() -> None:
    verdicts = {verdict.id: verdict.verdict for verdict in ss.verify(system=Product(), progress=False)}
    assert verdicts == {"product_gradient": "holds", "product_conserved": "holds"}

    @dataclass(frozen=True, kw_only=True)
    class Slower(Product):
        def gradient(self, parameters: Any, data: Any) -> Any:
            gradient, loss = super().gradient(parameters, data)
            return {**gradient, "z": gradient["z"] * 1.001}, loss

    wrong = {verdict.id: verdict.verdict for verdict in ss.verify(system=Slower(), progress=False)}
    assert wrong == {"slower_gradient": "fails", "slower_conserved": "fails"}
    with pytest.raises(ss.InputError, match="choose one of slower_gradient, slower_conserved"):
        ss.verify("nothing_like_it", system=Slower())


def test_the_command_line_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained, integrated, swept, drawn and described, with its rates by --set."""
    file = tmp_path / "product.py"
    text = Path(__file__).read_text(encoding="utf-8").split("OPTIONS: dict")[0]
    file.write_text(text.replace("@options\nclass", "@ss.SYSTEMS.register('two-factors')\n@options\nclass"))

    monkeypatch.setattr(ss.SYSTEMS, "_makers", {**ss.SYSTEMS})  # what the file registers is gone after the test

    def scansnap(*words: str) -> str:
        result = run(*words, "--from", str(file), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stdout

    rates = ("--system", "two-factors", "--set", "lr_u=0.2", "--lr-z", "0.1", "--set", "tokens=4")
    assert "loss" in scansnap("train", *rates, "--steps", "20", "--store", "run.zarr")
    assert ss.load(tmp_path / "run.zarr").sizes["token"] == 4
    assert (tmp_path / "run.png").stat().st_size > 10_000
    table = scansnap("verify", "--system", "two-factors")
    assert "two_factors_conserved" in table
    assert f"scansnap verify two_factors_gradient --system two-factors --from {file}" in table
    in_full = scansnap("verify", "two_factors_gradient", "--system", "two-factors")
    assert "checked on" not in in_full  # the classes of (Y, Z)
    assert "assumptions: " not in in_full
    assert "loss" in scansnap("flow", *rates, "--times", "1,10,1e6")
    assert "loss" in scansnap("sweep", *rates[:6], "--steps", "5", "--lr-z", "0.1,0.2")
    assert "conserved" in scansnap("systems", "two-factors")
    assert "two-factors" in scansnap("systems")
