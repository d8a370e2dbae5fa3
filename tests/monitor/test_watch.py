"""A watch in a loop: when it looks, what it refuses, and how looks fail."""

from __future__ import annotations

import math
import subprocess
import sys
import timeit
from collections.abc import Callable
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from scansnap.base.errors import InputError
from scansnap.monitor import calls, tally
from scansnap.monitor.observer import BegunLook, Measured
from scansnap.monitor.watch import Watch
from tests.monitor.small_models import GPT, LENGTH, TOKENS, ids
from tests.monitor.test_sight import ByHand


def model() -> GPT:
    torch.manual_seed(3)
    return GPT()


def test_it_looks_every_so_many_steps() -> None:
    watch = ss.watch(model(), probe=ids(), every=3)
    for _ in range(7):
        watch.step()
    assert watch.dataset["step"].values.tolist() == [0, 3, 6]
    watch.step(12)
    watch.look()
    assert watch.dataset["step"].values.tolist() == [0, 3, 6, 12]


def test_a_step_without_a_look_costs_nothing() -> None:
    """At most 2 microseconds, the best of 5 repetitions of 10,000 steps: it is about 0.1 on an idle machine."""
    watch = ss.watch(model(), probe=ids(), every=10**9)
    assert min(timeit.repeat(watch.step, number=10_000, repeat=5)) / 10_000 < 2e-6


def test_what_is_seen_has_the_names_of_the_model() -> None:
    watch = ss.watch(model(), probe=ids())
    assert watch.seen == ("blocks.0.attn", "blocks.1.attn")
    assert watch.dataset["module"].values.tolist() == list(watch.seen)
    assert watch.dataset.attrs["check"].startswith("the weights give the model's own outputs up to")


class Handmade(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([ByHand(), ByHand()])

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_a_model_in_which_nothing_is_seen_is_refused_until_it_is_announced() -> None:
    handmade = Handmade()
    watch = ss.watch(handmade, probe=torch.randn(2, 7, 12), every=1)
    for use in (watch.step, watch.look, lambda: watch.seen):
        with pytest.raises(InputError, match=r"no attention was seen in Handmade.*watch.attention\(module\)"):
            use()
    watch = ss.watch(handmade, probe=torch.randn(2, 7, 12), every=1)
    watch.attention(*handmade.layers)
    watch.step()
    assert watch.seen == ("layers.0", "layers.1")
    assert watch.dataset["attention_kind"].values.tolist() == ["causal", "causal"]
    assert watch.dataset["step"].values.tolist() == [0, 1]
    with pytest.raises(InputError, match="before the first step"):
        watch.attention(handmade.layers[0])


def test_probes_of_every_form_are_the_same() -> None:
    class Named(GPT):
        def forward(self, ids: Tensor, scale: float = 1.0) -> Tensor:  # type: ignore[override]
            return super().forward(ids) * scale

    torch.manual_seed(3)
    named = Named()
    forms: list[Any] = [ids(), (ids(), 2.0), {"input_ids": ids()}, [ids(), ids(seed=2)], lambda m: m(ids())]
    looks = [
        ss.watch(named if not isinstance(form, dict) else Keyword(named), probe=form, rows=None, errors="raise").dataset
        for form in forms
    ]
    for other in (looks[1], looks[2], looks[4]):
        np.testing.assert_allclose(other["entropy"], looks[0]["entropy"], rtol=1e-6)
    both = ss.watch(named, probe=torch.cat([ids(), ids(seed=2)]), rows=None, errors="raise").dataset
    np.testing.assert_allclose(looks[3]["entropy"], both["entropy"], rtol=1e-6)
    assert looks[0].attrs["probe"] == f"a tensor of 3 x {LENGTH}"
    for wrong in ([], "text", 3):
        with pytest.raises(InputError, match="probe"):
            ss.watch(named, probe=wrong)


class Keyword(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.inner(input_ids)


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


def test_mistakes_are_answered_in_a_sentence() -> None:
    for wrong, words in [
        ({"every": 0}, "every is 0"), ({"rows": 0}, "rows is 0"), ({"errors": "ignore"}, "unknown errors"),
    ]:  # fmt: skip
        with pytest.raises(InputError, match=words):
            ss.watch(model(), **{"probe": ids(), **wrong})
    with pytest.raises(InputError, match=r"give a torch\.nn\.Module"):
        ss.watch("model", probe=ids())  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"GPT cannot be run on the probe \(.*\): give what it is called with"):
        ss.watch(model(), probe=(ids(), 1, 2))


class Faulty(GPT):
    """Fails on more than `most` windows at a time, as if there were no memory."""

    most = 100

    def forward(self, ids: Tensor) -> Tensor:
        if len(ids) > self.most:
            raise torch.OutOfMemoryError("no memory for so many windows")
        return super().forward(ids)


def test_a_look_without_memory_is_taken_in_smaller_pieces() -> None:
    torch.manual_seed(3)
    faulty = Faulty()
    whole = ss.watch(faulty, probe=ids(8), rows=None, errors="raise")
    faulty.most = 3
    whole.step(50)
    looks = whole.dataset
    for name in ("entropy", "top_5", "largest_logit", "previous_token", "prefix_matching", "pattern"):
        np.testing.assert_allclose(looks[name].values[1], looks[name].values[0], rtol=1e-6, err_msg=name)
    assert np.isnan(looks["moved"].values[1]).all()
    whole.step(100)  # the pieces stay small, and what moves is measured again
    np.testing.assert_allclose(whole.dataset["moved"].values[2], 0.0, atol=1e-7)
    faulty.most = 0
    whole.step(149)
    with pytest.raises(torch.OutOfMemoryError):
        whole.step(150)


def test_a_look_that_fails_is_recorded_as_missing() -> None:
    torch.manual_seed(3)
    faulty = Faulty()
    watch = ss.watch(faulty, probe=ids(4), every=1)
    faulty.most = 0
    watch.step()
    faulty.most = 100
    watch.step()
    with torch.no_grad():
        kept = faulty.blocks[1].attn.c_attn.weight.clone()  # type: ignore[union-attr, operator]
        faulty.blocks[1].attn.c_attn.weight.fill_(math.nan)  # type: ignore[union-attr, operator]
        watch.step()
        faulty.blocks[1].attn.c_attn.weight.copy_(kept)  # type: ignore[union-attr, operator]
    watch.step()
    looks = watch.dataset
    assert looks["status"].values.tolist() == ["ok", "missing", "ok", "missing", "ok"]
    assert looks["reason"].values.tolist() == [
        "", "no memory for so many windows", "", "the attention logits of blocks.1.attn are not finite", "",
    ]  # fmt: skip
    assert np.isnan(looks["entropy"].values[[1, 3]]).all()
    assert np.isfinite(looks["entropy"].values[[0, 2, 4]]).all()


def test_attention_that_is_not_what_it_seems_is_said() -> None:
    class Deceiving(nn.Module):
        """Announces queries that it does not attend with."""

        def __init__(self) -> None:
            super().__init__()
            self.sign = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            return _Sharper.apply(x * self.sign)

    with pytest.warns(UserWarning, match="does not give what the model computed"):
        ss.watch(Deceiving(), probe=3 * torch.randn(2, 2, 6, 4))


class _Sharper:
    """A tensor subclass whose fused attention is another than the function says."""

    @staticmethod
    def apply(x: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(x, x, x.as_subclass(_Twice))


class _Twice(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is nn.functional.scaled_dot_product_attention else result


def test_pieces_of_rows_and_fewer_followed_rows_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    for at_once in (1 << 21, 200):
        monkeypatch.setitem(calls.AT_ONCE, "cpu", at_once)
        trained = model()
        watch = ss.watch(trained, probe=ids(), rows=None, errors="raise")
        trained.blocks[0].attn.c_attn.weight.data.mul_(1.5)  # type: ignore[union-attr, operator]
        watch.step(50)
        looks.append(watch.dataset)
    for name in looks[0].data_vars:
        np.testing.assert_allclose(looks[1][name], looks[0][name], rtol=1e-6, err_msg=str(name))
    monkeypatch.setattr(tally, "FOLLOWED", 2 * 3 * 2 * LENGTH * 4)  # four of eight rows
    trained = model()
    watch = ss.watch(trained, probe=ids(), rows=24, errors="raise")
    trained.blocks[0].attn.c_attn.weight.data.mul_(1.5)  # type: ignore[union-attr, operator]
    watch.step(50)
    np.testing.assert_allclose(watch.dataset["moved"][1], looks[0]["moved"][1], rtol=0.5)
    assert watch._observer.layers["blocks.0.attn"].before.shape == (3, 2, 4, LENGTH)  # type: ignore[union-attr]


def test_long_contexts_are_seen_without_their_whole_weights() -> None:
    """One head of 8,192 tokens has 268 million bytes of weights; a look holds no array of a tenth of that."""

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


class Slow:
    """An observer's looks as on a GPU that is done with them only after a while."""

    def __init__(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_done, self.reads = False, 0
        self._begin = watch._observer.begin
        monkeypatch.setattr(watch._observer, "begin", self._begin_slowly)

    def _begin_slowly(self) -> BegunLook:
        measured = self._begin().read()

        def read() -> Measured:
            self.reads += 1
            return measured

        return BegunLook(lambda: self.is_done, read)


def test_a_look_that_takes_longer_is_recorded_at_a_later_step_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    gpt = model()
    told: list[int] = []
    watch = ss.watch(gpt, probe=ids(), every=2, sinks=[lambda step, numbers: told.append(step)])
    slow = Slow(watch, monkeypatch)
    for _ in range(2):
        watch.step()
    expected = ss.watch(gpt, probe=ids()).dataset["entropy"].values[0]
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.zero_()
    watch.step()
    assert (slow.reads, told) == (0, [0])
    slow.is_done = True
    watch.step(3)
    assert (slow.reads, told) == (1, [0, 2])
    np.testing.assert_array_equal(watch.dataset["entropy"].values[1], expected)


@pytest.mark.parametrize("use", [attrgetter("dataset"), attrgetter("verdicts"), methodcaller("close")])
def test_who_asks_for_a_look_waits_for_it(use: Callable[[Watch], object], monkeypatch: pytest.MonkeyPatch) -> None:
    watch = ss.watch(model(), probe=ids(), every=1)
    slow = Slow(watch, monkeypatch)
    watch.step()
    watch.step()  # one look at a time
    assert slow.reads == 1
    use(watch)
    assert slow.reads == 2
    assert watch.dataset["step"].values.tolist() == [0, 1, 2]
    assert slow.reads == 2


LAST_LOOK = """
import sys
import pytest, torch
import scansnap as ss
from tests.monitor.test_watch import Slow, ids, model

watch = ss.watch(model(), probe=ids(), every=1, store=sys.argv[1], errors="raise")
slow = Slow(watch, pytest.MonkeyPatch())
watch.step()
"""


def test_a_look_that_is_not_read_is_recorded_when_the_program_ends(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", LAST_LOOK, str(tmp_path / "looks.zarr")], capture_output=True, text=True, check=True
    )
    assert finished.stderr == ""
    assert ss.load(tmp_path / "looks.zarr")["step"].values.tolist() == [0, 1]
