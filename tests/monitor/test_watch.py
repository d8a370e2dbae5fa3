"""A watch in a loop: when it snapshots, what it refuses, and how snapshots fail."""

from __future__ import annotations

import gc
import math
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import scansnap as ss
from scansnap.monitor import attention, snapshot
from scansnap.monitor.watch import Watch
from scansnap.runtime.errors import InputError, ScanSnapError
from tests.monitor.given_attention import GPT as Given
from tests.monitor.given_attention import anywhere, even, first
from tests.monitor.small_models import GPT, LENGTH, TOKENS, ByHand, ids


def model() -> GPT:
    torch.manual_seed(3)
    return GPT()


def walk(watch: Watch, *steps: int) -> None:
    for step in steps:
        watch.step(step)


def test_steps_only_grow() -> None:
    watch = ss.watch(model(), probe=ids(), every=10)
    watch.step(25)
    with pytest.warns(UserWarning, match="step 3 comes after step 25: no snapshots are taken until step 25") as said:
        walk(watch, 3, 10, 20)  # as if each epoch counted anew
    assert len(said) == 1
    watch.step()
    watch.step(30)
    assert watch.dataset["step"].values.tolist() == [0, 25, 30]
    with pytest.raises(InputError, match=r"step is 30\.5: give the number"):
        watch.step(30.5)  # type: ignore[arg-type]
    strict = ss.watch(model(), probe=ids(), errors="raise")
    with pytest.raises(InputError, match="step 3 comes after step 9"):
        walk(strict, 9, 3)


def test_a_model_of_which_nothing_is_captured_is_refused_until_it_is_announced() -> None:
    handmade = nn.Sequential(ByHand(), ByHand())
    said = r"no attention was captured in Sequential.*watch.attention\(module\)"
    with pytest.warns(UserWarning, match=said):  # before the training begins
        watch = ss.watch(handmade, probe=torch.randn(2, 7, 12), every=50)
    for use in (watch.step, watch.snapshot, lambda: watch.seen):
        with pytest.raises(InputError, match=said):
            use()
    watch.close()  # it has been said
    with pytest.warns(UserWarning, match=said):
        watch = ss.watch(handmade, probe=torch.randn(2, 7, 12), every=1)
    watch.attention(*handmade)
    watch.step()
    assert watch.seen == ("0", "1")
    assert watch.dataset["attention_kind"].values.tolist() == ["causal", "causal"]
    assert watch.dataset["step"].values.tolist() == [0, 1]
    with pytest.raises(InputError, match="before the first step"):
        watch.attention(handmade[0])


def test_a_model_without_attention_is_said_at_once() -> None:
    with pytest.warns(UserWarning, match=r"no attention was captured in Linear \(0 of 0 .* before the first step"):
        watch = ss.watch(plain := nn.Linear(12, 12), probe=torch.randn(2, 7, 12))
    with pytest.warns(UserWarning, match="Linear was announced but computes no softmax over keys: give queries_and_"):
        watch.attention(plain)
    with pytest.raises(InputError, match="Linear was announced but computes no softmax over keys: give queries_and_k"):
        watch.step()
    mixed = nn.Sequential(plain, ByHand())
    with pytest.warns(UserWarning, match=r"no attention was captured in Sequential \(0 of 1"):
        watch = ss.watch(mixed, probe=torch.randn(2, 7, 12))
    watch.attention(*mixed)
    with pytest.warns(UserWarning, match="1 of 2 attention modules captured; not captured: 0; announce .*quer") as said:
        walk(watch, 1, 2)
    assert len(said) == 1


@pytest.mark.filterwarnings("ignore:no attention was captured")  # it is announced later
def test_announcements_are_checked() -> None:
    model = nn.Sequential(ByHand())
    watch = ss.watch(model, probe=torch.randn(2, 7, 12))
    with pytest.raises(InputError, match="Linear is not a module of this model"):
        watch.attention(nn.Linear(2, 2))
    for wrong in (lambda module, x: x, lambda module, x: module.project(x)[:1], lambda module, x: ([1], [2])):
        with pytest.raises(InputError, match=r"queries_and_keys returned \w+ for ByHand: return a tuple of two"):
            watch.attention(model[0], queries_and_keys=wrong)
    watch.attention(model[0], queries_and_keys=lambda module, x: module.project(x)[:2])
    assert watch.seen == ("0",)


def test_probes_of_every_form_are_the_same() -> None:
    class Named(GPT):
        def forward(self, input_ids: Tensor, scale: float = 1.0) -> Tensor:  # type: ignore[override]
            return super().forward(input_ids) * scale

    torch.manual_seed(3)
    named = Named()
    forms: list[Any] = [ids(), (ids(), 2.0), {"input_ids": ids()}, [ids(), ids(seed=2)], lambda m: m(ids())]
    snapshots = [ss.watch(named, probe=form, rows=None, errors="raise").dataset for form in forms]
    for other in (snapshots[1], snapshots[2], snapshots[4]):
        np.testing.assert_allclose(other["entropy"], snapshots[0]["entropy"], rtol=1e-6)
    both = ss.watch(named, probe=torch.cat([ids(), ids(seed=2)]), rows=None, errors="raise").dataset
    np.testing.assert_allclose(snapshots[3]["entropy"], both["entropy"], rtol=1e-6)
    assert snapshots[0].attrs["probe"] == f"a tensor of 3 x {LENGTH}"


def test_a_model_with_time_first_is_seen_by_windows() -> None:
    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(TOKENS, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 16)

        def forward(self, ids: Tensor) -> Tensor:  # (T, B)
            return self.layer(self.embedding(ids))

    watch = ss.watch(TimeFirst(), probe=ids().T.contiguous(), rows=None, errors="raise")
    assert np.isfinite(watch.dataset["prefix_matching"].values).all()
    assert watch.dataset["token"].values.tolist() == [str(token) for token in ids()[0].tolist()]


class Faulty(GPT):
    """Fails on more than `most` windows at a time, as if there were no memory."""

    most = 100

    def forward(self, ids: Tensor) -> Tensor:
        if len(ids) > self.most:
            raise torch.OutOfMemoryError("no memory for so many windows")
        return super().forward(ids)


def test_a_snapshot_without_memory_is_taken_in_smaller_pieces() -> None:
    torch.manual_seed(3)
    faulty = Faulty()
    whole = ss.watch(faulty, probe=ids(8), rows=None, errors="raise")
    faulty.most = 3
    whole.step(50)
    snapshots = whole.dataset
    for name in ("entropy", "top_1", "largest_logit", "previous_token", "prefix_matching", "pattern"):
        np.testing.assert_allclose(snapshots[name].values[1], snapshots[name].values[0], rtol=1e-6, err_msg=name)
    assert np.isnan(snapshots["moved"].values[1]).all()
    whole.step(100)  # the pieces stay small, and what moves is measured again
    np.testing.assert_allclose(whole.dataset["moved"].values[2], 0.0, atol=1e-7)
    faulty.most = 0
    whole.step(149)
    with pytest.raises(torch.OutOfMemoryError):
        whole.step(150)


def break_attention(gpt: GPT, block: int = 0) -> None:
    gpt.blocks[block].attn.c_attn.weight.data.fill_(math.nan)  # type: ignore[union-attr, operator]


def test_attention_that_is_not_finite_is_an_alarm() -> None:
    """Of the first layer that has such; a warning comes once, and sinks are told."""
    gpt, told = GPT(layers=3), dict[int, dict[str, float]]()
    watch = ss.watch(
        gpt, probe=ids(), every=5, record=("entropy",), sinks=[lambda step, numbers: told.update({step: dict(numbers)})]
    )
    watch.step(5)
    break_attention(gpt, 1)
    with pytest.warns(
        UserWarning, match=r"step 10 is not whole \(.*blocks.1.attn are not finite, nor.* other layers"
    ) as said:
        watch.step(10)
    assert said[0].filename == __file__
    break_attention(gpt, 0)  # as the next step of training makes all weights NaN
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was said
        watch.step(15)
    assert {(v.name, v.severity, v.module, v.since) for v in watch.verdicts} == {
        ("not-finite", "alarm", "blocks.1.attn", 10)
    }
    assert told[5]["snapshots/missing"] == 0
    assert told[5]["heads/not-finite"] == 0
    assert told[15]["snapshots/missing"] == told[15]["heads/not-finite"] == 2
    assert "entropy/layer_00" in told[10]
    assert "entropy/layer_01" not in told[10]
    with pytest.raises(ScanSnapError, match="not finite"):
        ss.watch(gpt, probe=ids(), errors="raise")


def test_a_users_quantity_that_fails_is_named() -> None:
    """At the first snapshot it is refused; later it is missing alone."""

    @ss.head_quantity(long_name="with a slip of the pen")
    def slip(rows: Any) -> Tensor:
        return rows.wieghts.amax(-1)

    @ss.head_quantity(long_name="one number for each window")
    def small(rows: Any) -> Tensor:
        return rows.weights.amax((1, 2, 3))

    layers, fails_from = 0, math.inf

    @ss.head_quantity(long_name="fails later")
    def late(rows: Any) -> Tensor:
        nonlocal layers
        layers += 1
        return rows.nothing if layers >= fails_from else rows.entropy

    with pytest.raises(InputError, match=r"the quantity 'slip' fails \(AttributeError: .*wieghts") as refused:
        ss.watch(model(), probe=ids(), record=("entropy", slip))
    assert "return rows.wieghts.amax(-1)" in refused.value.__notes__[0]
    with pytest.raises(InputError, match=rf"'small' gives a tensor of 3: return .* here 3 x 2 x {LENGTH}"):
        ss.watch(model(), probe=ids(), record=(small,))
    watch = ss.watch(model(), probe=ids(), record=("entropy", late), every=1)
    fails_from = layers + 2  # after the first layer of the next snapshot, which counts for nothing then
    with pytest.warns(UserWarning, match="at step 1 the quantity 'late' fails") as said:
        walk(watch, 1, 2)
    assert len(said) == 1
    snapshots = watch.dataset
    assert np.isfinite(snapshots["entropy"].values).all()
    assert np.isnan(snapshots["late"].values[1:]).all()
    assert snapshots["status"].values.tolist() == ["ok"] * 3


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("fails", ["nothing", "the model", "the memory", "a quantity"])
def test_a_snapshot_leaves_no_tensors_to_the_garbage_collector(fails: str) -> None:
    """Those of a snapshot that failed would be in the way of the next one; nor does its error keep them."""
    measured: list[weakref.ref[Tensor]] = []
    is_broken = False

    @ss.head_quantity(long_name="fails when told")
    def fragile(rows: Any) -> Tensor:
        measured.append(weakref.ref(rows.weights))
        if is_broken:
            raise MemoryError if fails == "the memory" else ValueError("told to fail")
        return rows.entropy

    faulty = Faulty()
    watch = ss.watch(faulty, probe=ids(8), every=1, record=("entropy", "moved", fragile))
    is_broken, faulty.most = fails in ("the memory", "a quantity"), 3 if fails == "the model" else 100
    gc.collect()
    gc.disable()
    try:
        gc.set_debug(gc.DEBUG_SAVEALL)
        watch.step()
        gc.collect()
        assert not [tensor for tensor in gc.garbage if isinstance(tensor, Tensor)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert measured
    assert not any(weights() is not None for weights in measured)


def test_pieces_of_rows_and_fewer_followed_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(rows: int | None) -> xr.Dataset:
        trained = model()
        watch = ss.watch(trained, probe=ids(), rows=rows, errors="raise")
        trained.blocks[0].attn.c_attn.weight.data.mul_(1.5)  # type: ignore[union-attr, operator]
        watch.step(50)
        return watch.dataset

    whole, sample = moved(None), moved(24)
    monkeypatch.setattr(snapshot, "MAX_FOLLOWED", 2 * 3 * 2 * LENGTH * 4)  # four of eight rows
    fewer = moved(24)
    np.testing.assert_allclose(fewer["moved"][1], whole["moved"][1], rtol=0.5)
    assert (fewer["moved"][1] != sample["moved"][1]).all()
    np.testing.assert_array_equal(fewer["entropy"], sample["entropy"])
    monkeypatch.setitem(attention.MAX_WEIGHTS, "cpu", 200)
    for name, values in moved(None).data_vars.items():
        np.testing.assert_allclose(values, whole[name], rtol=1e-6, err_msg=str(name))


def test_long_contexts_are_seen_without_their_whole_weights() -> None:
    """One head of 8,192 tokens has 268 million bytes of weights; a snapshot holds no array of a tenth of that."""

    class Long(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.Linear(8, 24)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (t.unflatten(2, (2, 4)).transpose(1, 2) for t in self.attention(x).chunk(3, 2))
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    largest = 0

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            for tensor in torch.utils._pytree.tree_leaves(result):
                if isinstance(tensor, Tensor):
                    largest = max(largest, tensor.numel() * tensor.element_size())
            return result

    watch = ss.watch(Long(), probe=torch.randn(1, 8192, 8), errors="raise")
    with Sizes():
        watch.step(50)
    assert np.isfinite(watch.dataset["entropy"].values).all()
    assert 2 * 256 * 8192 * 4 <= largest < 0.1 * 8192**2 * 4


def test_snapshots_are_taken_where_a_multiple_is_reached_or_passed() -> None:
    """Of steps that are counted, told, told again, or told only now and then."""
    watch = ss.watch(model(), probe=ids(), every=3)
    for _ in range(7):
        watch.step()
    walk(watch, 12, 12)
    watch.snapshot()
    assert watch.dataset["step"].values.tolist() == [0, 3, 6, 12]
    assert watch.seen == tuple(watch.dataset["module"].values) == ("blocks.0.attn", "blocks.1.attn")
    assert watch.coverage == watch.dataset.attrs["coverage"] == "2 of 2 attention modules captured"
    some = ss.watch(model(), probe=ids(), every=10, record="entropy")
    walk(some, 0, 0, 9, 10, 10, 16, 24, 31, 39, 60, 61)
    assert some.dataset["step"].values.tolist() == [0, 10, 24, 31, 60]


def test_a_closed_watch_refuses_steps() -> None:
    with ss.watch(model(), probe=ids()) as watch:
        watch.step()
    for use in (watch.step, watch.snapshot):
        with pytest.raises(InputError, match="the watch is closed: make another"):
            use()
    watch.close()
    assert repr(watch) == "<watch of GPT at step 1: 1 snapshot every 50 steps, attention layers: 2>"


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"every": -1}, "every is -1: give a whole number from 1"),
        ({"rows": 0}, "rows is 0: give .* number from 1"),
        ({"errors": "ignore"}, "unknown errors"),
        ({"model": "model"}, r"give a torch\.nn\.Module"),
        ({"model": GPT().to("meta")}, "GPT is on the meta device, without values: load its weights first"),
        ({"probe": (ids(), 1, 2)}, r"GPT cannot be run on the probe \(.*\): give what it is called with"),
        ({"probe": [ids(), torch.zeros(3)]}, r"GPT cannot be run on the probe \("),  # a loader's inputs and targets
        ({"probe": []}, "probe"),
        ({"probe": ids(0)}, "the probe is empty: give at least one window"),
        ({"probe": "text"}, "the probe is text: tokenize it first"),
        ({"probe": ids().numpy()}, r"give torch\.from_numpy\(\.\.\.\) of it"),
        ({"probe": ids(3, 1)}, "the probe has one token"),
        ({"record": ()}, "record is empty: name at least one quantity"),
        ({"record": ("entropi",)}, "did you mean 'entropy'"),
        ({"record": ("entropy", "entropy")}, "twice"),
        ({"tokens": ["a", "b"]}, r"tokens has no word for the token \d+ \(.* index out of range\)"),
    ],
)
def test_mistakes_are_answered_in_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ss.watch(**{"model": model(), "probe": ids(), **wrong})


@pytest.mark.parametrize(
    ("loss", "sentence"), [("a", "loss is 'a': give a number"), (torch.zeros(3), "loss has 3 numbers: give its mean")]
)
def test_a_loss_is_one_number(loss: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ss.watch(model(), probe=ids()).step(loss=loss)


def test_a_snapshot_that_fails_is_recorded_as_missing() -> None:
    """With one warning, and sinks are told; the training goes on."""
    torch.manual_seed(3)
    faulty, told = Faulty(), dict[int, dict[str, float]]()
    watch = ss.watch(faulty, probe=ids(4), every=1, sinks=[lambda step, numbers: told.update({step: dict(numbers)})])
    faulty.most = 0
    with pytest.warns(UserWarning, match=r"the snapshot at step 1 is missing \(no memory for so many") as said:
        walk(watch, 1, 2)
    assert len(said) == 1
    assert told[2] == {"snapshots/missing": 2}
    assert "3 snapshots, 2 missing" in repr(watch)
    faulty.most = 100
    watch.step()
    snapshots = watch.dataset
    assert snapshots["status"].values.tolist() == ["ok", "missing", "missing", "ok"]
    assert snapshots["reason"].values.tolist() == ["", *["no memory for so many windows"] * 2, ""]
    assert np.isfinite(snapshots["entropy"].values).all((1, 2)).tolist() == [True, False, False, True]


@pytest.mark.filterwarnings("ignore:the snapshot at step 1 is not whole")
def test_new_alarms_are_told_once() -> None:
    """And again if they come again; what the function raises ends the training."""
    gpt, told = GPT(layers=2), list[list[tuple[str, int]]]()
    weights = [block.attn.c_attn.weight.data for block in gpt.blocks]  # type: ignore[union-attr]
    healthy = weights[1].clone()
    watch = ss.watch(
        gpt, probe=ids(), every=1, on_alarm=lambda alarms: told.append([(v.name, v.layer) for v in alarms])
    )
    for change in (math.nan, math.nan, healthy, math.nan):
        weights[1][...] = change
        watch.step()
    assert told == 2 * [[("not-finite", 1)] * 2]

    def stop(alarms: object) -> None:
        raise KeyboardInterrupt

    weights[1][...] = healthy
    ending = ss.watch(gpt, probe=ids(), every=1, on_alarm=stop)
    weights[1][...] = math.nan
    with pytest.raises(KeyboardInterrupt):
        ending.step()


def test_a_new_alarm_says_what_explained_it_before() -> None:
    """The second head attends to the first token alone, and then to other keys: it is new at step 2, not at step 1."""
    given, told = Given(1), list[ss.HeadVerdict]()
    rng = np.random.default_rng(0)
    patterns = (even(24), first(24, 0.999), anywhere(24, 0.999, rng))
    given.show(np.stack([patterns[0], patterns[0]])[None])
    watch = ss.watch(given, probe=torch.zeros(1, 24, 1), every=1, rows=None, on_alarm=told.extend)
    for one, other in ((2, 1), (2, 2)):
        given.show(np.stack([patterns[one], patterns[other]])[None])
        watch.step()
    assert [(v.name, v.head, v.since) for v in told] == [("collapsed", 0, 1), ("collapsed", 1, 1)]
    assert [v.evidence.endswith("; until now it was sink") for v in told] == [False, True]


def test_without_patterns_with_loss_and_rate(tmp_path: Path) -> None:
    """Read back from a store that is continued."""
    gpt = model()
    optimizer = torch.optim.SGD(gpt.parameters(), 0.5)
    options: dict[str, Any] = {"probe": ids(), "every": 1, "store": tmp_path / "a.zarr", "pattern": False}
    for _ in range(2):
        with ss.watch(gpt, optimizer=optimizer, errors="raise", **options) as watch:
            watch.step(loss=torch.tensor(2.0, requires_grad=True))
        optimizer.param_groups[0]["lr"] = 0.25
    assert "pattern" not in watch.dataset
    np.testing.assert_array_equal(watch.dataset["loss"], [math.nan, 2.0, 2.0])
    assert watch.dataset["learning_rate"].values.tolist() == [0.5, 0.5, 0.25]
    with pytest.raises(ss.StoreError, match="it lacks pattern; give the same to continue it"):
        ss.watch(gpt, **options | {"pattern": True})
