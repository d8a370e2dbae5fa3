"""Update rules of a user's own: in training, sweeps, stores and resumption, and what is refused."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.dynamics import kernel, kernel_data
from scansnap.dynamics.kernel_engine import KernelEngine
from tests.dynamics.reference import population_gradients, relative, work_of

pytestmark = pytest.mark.rounding

OPTIONS: dict[str, Any] = {"lr_y": 0.05, "lr_z": 0.1, "steps": 12, "batch_size": 8, "seq_len": 16, "dtype": "float64"}


@dataclass(frozen=True)
class Lion:
    """The sign of a mean gradient, with a rate that grows over the first steps."""

    beta: float = 0.9
    warm_up: int = 5
    memory = ("mean",)

    def move(self, update: ss.Update) -> None:
        mean, g = update.memory["mean"], update.gradient
        rate = update.rate * torch.clamp((update.step + 1).double() / self.warm_up, max=1)
        update.matrix.add_(rate * torch.sign(self.beta * mean + (1 - self.beta) * g))
        mean.mul_(0.99).add_(g, alpha=0.01)


@dataclass(frozen=True)
class Momentum:
    """SGD as a user would write it."""

    momentum: float = 0.0
    memory = ("v",)

    def move(self, update: ss.Update) -> None:
        update.memory["v"].mul_(self.momentum).add_(update.gradient)
        update.matrix.add_(update.rate * update.memory["v"])


def same(first: Any, second: Any) -> bool:
    return all(np.array_equal(first[name], second[name], equal_nan=True) for name in first.data_vars)


def test_a_rule_sees_the_gradient_of_every_entry() -> None:
    """Eight steps against the rule applied to whole M x M matrices, although most output columns are merged."""
    classes = ss.syn_medium(num_query=2)
    y = np.zeros((classes.vocab_size, classes.vocab_size))
    z = np.zeros((len(classes.queries), classes.vocab_size))
    means = [0 * y, 0 * z]
    for step in range(8):
        *gradients, _ = population_gradients(classes, y, z)
        for matrix, mean, g, rate in zip((y, z), means, gradients, (0.05, 0.1), strict=True):
            matrix += rate * min((step + 1) / 5, 1) * np.sign(0.7 * mean + 0.3 * g)
            mean += 0.01 * (g - mean)
    run = ss.train(
        classes,
        **{**OPTIONS, "steps": 8, "batch_size": None, "seq_len": math.inf},
        optimizer=Lion(0.7),
        record=("attention_logits", "decoder"),
    ).isel(run=0, step=-1)
    rows = classes.contextual_tokens
    assert relative(run["attention_logits"].values[0, 0], z[:, rows]) < 1e-12
    assert relative(run["decoder"].values[0, 0], y[rows]) < 1e-12


def polar(matrix: torch.Tensor) -> torch.Tensor:
    """U Vᵀ of the singular value decomposition, without directions of singular value zero."""
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    return left * (values > 1e-9 * values.amax(-1, keepdim=True))[..., None, :] @ right


@dataclass(frozen=True)
class Muon:
    """The mean gradient with all of its singular values set to one: a rule that mixes entries."""

    beta: float = 0.9
    memory = ("mean",)

    def move(self, update: ss.Update) -> None:
        mean = update.memory["mean"].mul_(self.beta).add_(update.folded)
        update.matrix.add_(update.rate * update.unfold(polar(mean)))


@pytest.mark.parametrize("normalization", ["l2", "layer"])
def test_a_rule_may_mix_entries(normalization: str) -> None:
    """Six steps against whole M x M matrices; LayerNorm merges rows too."""
    classes = ss.syn_medium(num_query=2)
    m = classes.vocab_size
    y, z = np.zeros((m, m)), np.zeros((len(classes.queries), m))
    means = [0 * y, 0 * z]
    for _ in range(6):
        *gradients, _ = population_gradients(classes, y, z, centered=normalization == "layer")
        for matrix, mean, g, rate in zip((y, z), means, gradients, (0.05, 0.1), strict=True):
            mean *= 0.9
            mean += g
            matrix += rate * polar(torch.from_numpy(mean)).numpy()
    whole = {"batch_size": None, "seq_len": math.inf, "record": ("attention_logits", "decoder")}
    run = ss.train(classes, **{**OPTIONS, **whole, "steps": 6}, optimizer=Muon(), normalization=normalization)
    run = run.isel(run=0, step=-1)
    rows = classes.contextual_tokens
    assert relative(run["decoder"].values[0, 0], y[rows]) < 1e-9
    assert relative(run["attention_logits"].values[0, 0], z[:, rows]) < 1e-9


def moved_by(move: Callable[[ss.Update], object], memory: object = ()) -> ss.UpdateRule:
    """A rule that moves as the function says."""
    return cast(ss.UpdateRule, SimpleNamespace(move=move, memory=memory))


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (moved_by(lambda u: u.matrix.add_(polar(u.gradient))), "moves merged entries otherwise than the"),
        (moved_by(lambda u: u.matrix.add_(u.gradient / u.gradient.norm())), "moves merged entries otherwise"),
        (moved_by(lambda u: u.matrix + u.rate * u.gradient), "move returns a value and leaves the matrix"),
        (moved_by(lambda u: u.matrix.add_(u.gradient / u.gradient)), "to numbers that are not finite"),
        (moved_by(lambda u: u.memory["mean"]), r"fails with KeyError: 'mean' \(test_update_rules\.py, line \d+\)\.$"),
        (moved_by(lambda u: None, ("mean")), r"has memory = 'mean': give a tuple of names, such as \('momentum',\)"),
        (moved_by(lambda u: None, 3), "has memory = 3: give a tuple of names"),
    ],
)
def test_a_rule_is_tried_first(rule: ss.UpdateRule, sentence: str) -> None:
    with pytest.raises(ss.InputError, match=f"^the optimizer SimpleNamespace.*{sentence}"):
        ss.train(ss.syn_small(), **OPTIONS, optimizer=rule)


@pytest.mark.parametrize("given", [{"optimizer": Momentum(0.9)}, {"optimizer": Momentum(), "momentum": 0.9}], ids=str)
def test_sgd_can_be_written_again(given: dict[str, Any]) -> None:
    own = ss.train(ss.syn_small(), **OPTIONS, **given)
    built_in = ss.train(ss.syn_small(), **OPTIONS, momentum=0.9)
    for name in own.data_vars:
        np.testing.assert_allclose(own[name], built_in[name], rtol=1e-9, atol=1e-12)


def test_a_rule_is_an_axis_of_a_sweep(tmp_path) -> None:
    rules = ["sgd", Lion(), Lion(beta=0.5), ss.Adam(beta_1=0.5)]
    for store in (None, tmp_path / "s.zarr"):
        result = ss.sweep(ss.syn_small(), **OPTIONS, optimizer=rules, seeds=[0, 1], store=store)
        labels = ["sgd", f"{__name__}.Lion", f"{__name__}.Lion(beta=0.5)", "adam(beta_1=0.5)"]
        assert result["optimizer"].values.tolist() == labels
        for label, rule in zip(labels, rules, strict=True):
            alone = ss.train(ss.syn_small(), **OPTIONS, optimizer=rule, seeds=[0, 1], record_every=None)
            losses = result["loss"].sel(optimizer=label, lr_z=0.1, lr_y=0.05)
            np.testing.assert_allclose(losses, alone["loss"], rtol=1e-12)


def test_other_settings_are_another_run(tmp_path) -> None:
    path = tmp_path / "run.zarr"
    first = ss.train(ss.syn_small(), **OPTIONS, optimizer=Lion(), store=path).load()
    assert same(ss.train(ss.syn_small(), **OPTIONS, optimizer=Lion(beta=0.9), store=path).load(), first)
    with pytest.raises(ss.StoreError, match=r"holds another run, with optimizer = .*Lion and not .*Lion\(beta=0\.8\)"):
        ss.train(ss.syn_small(), **OPTIONS, optimizer=Lion(beta=0.8), store=path)
    with pytest.raises(ss.StoreError, match=r"holds another run, with optimizer = .*Lion and not sgd"):
        ss.train(ss.syn_small(), **OPTIONS, store=path)
    ss.sweep(ss.syn_small(), **OPTIONS, optimizer=Lion(), store=tmp_path / "s.zarr")
    with pytest.raises(ss.StoreError, match="holds another run, with optimizer"):
        ss.sweep(ss.syn_small(), **OPTIONS, optimizer=Lion(warm_up=2), store=tmp_path / "s.zarr")


def test_a_rule_can_have_a_name(monkeypatch) -> None:
    monkeypatch.setattr(ss.OPTIMIZERS, "_makers", {**ss.OPTIMIZERS})
    ss.OPTIMIZERS.register("lion")(Lion)
    named = ss.train(ss.syn_small(), **OPTIONS, optimizer="lion")
    assert same(named, ss.train(ss.syn_small(), **OPTIONS, optimizer=Lion()))
    assert '"optimizer": "lion"' in named.attrs["options"]
    assert '"optimizer": "lion(beta=0.5)"' in ss.train(ss.syn_small(), **OPTIONS, optimizer=Lion(0.5)).attrs["options"]
    with pytest.raises(ss.InputError, match="the optimizer 'lion' exists already"):
        ss.OPTIMIZERS.register("lion")(Momentum)


def test_compiled_code_refuses_settings_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of the kernel with one more field is left to the tensor engine, not trained without it."""

    @dataclass(frozen=True)
    class Nesterov:
        momentum: float = 0.0
        nesterov: bool = True

    monkeypatch.setitem(kernel_data.RULES, Nesterov, kernel.SGD)
    assert not kernel_data.has_kernel_rule(Nesterov())
    assert all(kernel_data.has_kernel_rule(ss.OPTIMIZERS.member(name)) for name in ss.OPTIMIZERS)


def test_compiled_code_follows_the_order_of_a_rule_s_fields() -> None:
    """Numba compiles a field's place, and compiles anew only if the file of the compiled function changes."""
    assert inspect.getsourcefile(kernel.Rule) == inspect.getsourcefile(kernel.advance.py_func)


def test_the_basic_kernel_takes_plain_steps_alone() -> None:
    """It compiles momentum and nothing else of a rule: any other setting, also a new one, needs the whole kernel."""
    plain = kernel.Rule(kernel.SGD, 0.9, *[0.0] * (len(kernel.Rule._fields) - 2))
    assert kernel_data.has_plain_steps(plain)
    for name in set(kernel.Rule._fields) - {"momentum"}:
        assert not kernel_data.has_plain_steps(plain._replace(**{name: 1}))


def test_compiled_code_takes_no_rule_for_its_own() -> None:
    """A rule that is derived from SGD moves as it says itself."""

    class Still(ss.SGD):
        def move(self, update: ss.Update) -> None:
            pass

    assert KernelEngine.serves(work_of(ss.syn_small(), optimizer=ss.SGD(momentum=0.5)))
    assert not KernelEngine.serves(work_of(ss.syn_small(), optimizer=Still()))
    result = ss.train(ss.syn_small(), **OPTIONS, optimizer=Still(), init="uniform")
    assert same(result.isel(step=[0])[["attention_logits"]], result.isel(step=[-1])[["attention_logits"]])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"optimizer": "lion"},
            r"^unknown optimizer 'lion': choose one of sgd, adam, sign_sgd, normalized_sgd, or give an object with "
            r"move\(\.\.\.\)\.$",
        ),
        ({"optimizer": "normalised_sgd"}, "did you mean 'normalized_sgd'"),
        (
            {"optimizer": math},
            r"^optimizer is <module 'math'.*: give one of sgd, adam, sign_sgd, normalized_sgd, or an object with "
            r"move\(\.\.\.\)\.$",
        ),
        ({"optimizer": Lion}, "^optimizer is <class .*: give one of sgd, "),
        ({"optimizer": None}, "^optimizer is None: give one of sgd, "),
        ({"optimizer": Lion(), "momentum": 0.9}, r"^momentum is 0\.9 but the optimizer is .*Lion: momentum belongs to"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ss.InputError, match=sentence):
        ss.train(ss.syn_small(), **OPTIONS, **options)
    with pytest.raises(ss.InputError, match=sentence):
        ss.sweep(ss.syn_small(), **OPTIONS, **options)
