"""What people do with a model while it is watched."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from collections import UserDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import scansnap as ss
from scansnap.runtime.errors import InputError
from tests.monitor.small_models import GPT, ByHand, ids

NUMBERS = ("entropy", "top_1", "largest_logit", "previous_token", "prefix_matching", "qk_singular_value", "pattern")


def model(seed: int = 3) -> Any:
    torch.manual_seed(seed)
    return GPT(dropout=0.0)


def same(snapshot: Any, watched: nn.Module, probe: Any = None) -> bool:
    """Whether a snapshot is that of a watch that begins now."""
    fresh = ss.watch(watched, probe=ids() if probe is None else probe, rows=None, errors="raise").dataset.isel(step=0)
    return all(np.allclose(snapshot[name], fresh[name], rtol=1e-6, atol=0, equal_nan=True) for name in NUMBERS)


def compiled(watched: Any) -> None:
    torch._dynamo.reset()
    watched.compile(backend="eager")
    watched(ids())


@pytest.mark.parametrize(
    "change",
    [
        lambda watched: watched.double(),
        lambda watched: watched.requires_grad_(False),
        lambda watched: watched.load_state_dict(model(5).state_dict()),
        lambda watched: watched.load_state_dict(model(5).state_dict(), assign=True),
        lambda watched: setattr(watched.blocks[0], "attn", copy.deepcopy(watched.blocks[1].attn)),
        lambda watched: nn.utils.parametrizations.weight_norm(watched.blocks[0].attn.c_attn),
        compiled,
    ],
    ids=["dtype", "frozen", "loaded", "assigned", "replaced", "parametrized", "compiled"],
)
def test_a_model_may_change_after_the_watch_is_made(change: Callable[[Any], object]) -> None:
    watched = model()
    watch = ss.watch(watched, probe=ids(), rows=None, every=1, errors="raise")
    change(watched)
    watch.step()
    assert same(watch.dataset.isel(step=1), watched)


@pytest.mark.filterwarnings("ignore:no attention was captured")  # it is announced later
def test_a_snapshot_follows_the_model_to_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here to the same one under another name: what was announced is still seen, and nothing is known to have moved."""
    watched = nn.Sequential(nn.Embedding(23, 12), ByHand())
    watch = ss.watch(watched, probe=ids(), rows=None, every=1, errors="raise")
    watch.attention(watched[1])
    monkeypatch.setattr("scansnap.monitor.watch._device", lambda _: torch.device("cpu", 0))
    for _ in range(2):
        watch.step()
    snapshots = watch.dataset
    for name in ("entropy", "prefix_matching", "pattern"):
        np.testing.assert_allclose(snapshots[name], snapshots[name].values[[0, 0, 0]], rtol=1e-6)
    assert np.isnan(snapshots["moved"]).all(("layer", "head")).values.tolist() == [True, True, False]


@pytest.mark.gpu
def test_a_model_may_move_to_another_device() -> None:
    watched = model()
    watch = ss.watch(watched, probe=ids(), rows=None, every=1, errors="raise")
    for device in ("cuda", "cuda", "cpu"):
        watched.to(device)
        watch.step()
    snapshots = watch.dataset
    np.testing.assert_allclose(snapshots["entropy"], snapshots["entropy"].values[[0, 0, 0, 0]], rtol=1e-3)
    assert np.isnan(snapshots["moved"]).all(("layer", "head")).values.tolist() == [True, True, False, True]


def test_several_watches_follow_one_model() -> None:
    """Also one of a part of it, and one that is made while gradients are accumulated."""
    watched = model()
    first = ss.watch(watched, probe=ids(), rows=None, every=1, errors="raise")
    part = ss.watch(watched.blocks[1], probe=torch.randn(2, 6, 16), every=1, errors="raise")
    watched(ids(seed=1)).square().mean().backward()
    second = ss.watch(watched, probe=ids(seed=2), rows=None, every=1, errors="raise")
    loss = watched(ids(seed=4)).square().mean()
    for watch in (first, second, part):
        watch.step()
    loss.backward()  # a snapshot between the passes changes nothing that they need
    gradients = [parameter.grad.clone() for parameter in watched.parameters()]
    watched.zero_grad()
    for seed in (1, 4):
        watched(ids(seed=seed)).square().mean().backward()
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, watched.parameters(), strict=True))
    assert same(first.dataset.isel(step=1), watched)
    assert same(second.dataset.isel(step=1), watched, ids(seed=2))
    assert part.seen == ("attn",)


Batch = namedtuple("Batch", ["input_ids", "attention_mask"])


class OfBatch(nn.Module):
    """Is called with a whole batch, however that holds its tensors."""

    def __init__(self, read: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.inner, self._read, self.most = model(), read, 99

    def forward(self, batch: Any) -> Tensor:
        tokens = self._read(batch)
        if len(tokens) > self.most:
            raise torch.OutOfMemoryError
        return self.inner(tokens)


@pytest.mark.parametrize(
    ("batch", "read"),
    [
        ({"text": {"input_ids": ids()}}, lambda batch: batch["text"]["input_ids"]),
        (UserDict(input_ids=ids()), lambda batch: batch["input_ids"]),
        (Batch(ids(), None), lambda batch: batch.input_ids),
        ([ids(), 3], lambda batch: batch[0]),
    ],
    ids=["mapping", "user mapping", "named tuple", "list"],
)
def test_batches_that_hold_their_tensors(batch: Any, read: Callable[[Any], Tensor]) -> None:
    """They are copied, described, and shown with repeated tokens and in pieces as tensors are."""
    watched = OfBatch(read)
    watch = ss.watch(watched, probe=(batch,), rows=None, every=1, errors="raise")
    tensor = read(batch)
    before = tensor.clone()
    tensor.zero_()  # the loop writes its next batch there
    watched.most = 2
    watch.step()
    tensor.copy_(before)
    assert watch.dataset.attrs["probe"].endswith("of 3 x 12")
    assert watch.dataset["token"].values.tolist() == [str(token) for token in before[0].tolist()]
    for snapshot in range(2):
        assert same(watch.dataset.isel(step=snapshot), model())


def test_one_tensor_for_several_arguments_is_self_attention() -> None:
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    assert ss.watch(attention, probe=(x, x, x)).dataset["attention_kind"].values.tolist() == ["self"]
    assert ss.watch(attention, probe=(x, x.clone(), x)).dataset["attention_kind"].values.tolist() == ["cross"]


@pytest.mark.filterwarnings("ignore:windows of repeated tokens are left out")
def test_models_for_so_many_windows_and_no_others() -> None:
    """Repeated tokens are shown in further windows; where that fails, they are not, and nothing else is lost."""

    class Fixed(GPT):
        def forward(self, ids: Tensor) -> Tensor:
            assert len(ids) == 3
            return super().forward(ids)

    torch.manual_seed(3)
    watch = ss.watch(Fixed(dropout=0.0), probe=ids(), rows=None, every=1, errors="raise")
    watch.step()
    usual = ss.watch(model(), probe=ids(), rows=None).dataset
    for name in ("entropy", "top_1", "qk_singular_value", "pattern"):
        np.testing.assert_allclose(watch.dataset[name], usual[name].values[[0, 0]], rtol=1e-6)
    assert np.isnan(watch.dataset["prefix_matching"]).all()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ragged_batches(device: str) -> None:
    """Each window has the numbers that it has alone."""

    class Ragged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(23, 16)
            self.q_proj, self.k_proj, self.v_proj = (nn.Linear(16, 16) for _ in range(3))

        def forward(self, tokens: Tensor) -> Tensor:
            x = self.embedding(tokens)
            parts = (part(x).unflatten(-1, (2, 8)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj))
            return nn.functional.scaled_dot_product_attention(*parts)

    torch.manual_seed(0)
    ragged, lengths, rtol = Ragged().to(device), (5, 8, 6), 1e-6 if device == "cpu" else 1e-3
    windows = [torch.randint(23, (length,), device=device) for length in lengths]
    probe = torch.nested.nested_tensor(windows, layout=torch.jagged)
    with warnings.catch_warnings(action="error"):  # the weights give the model's outputs
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors")
        watch = ss.watch(ragged, probe=probe, rows=None, every=1, errors="raise")
    watch.step()
    assert watch.dataset.attrs["probe"] == "a tensor of 3 ragged windows"
    alone = [ss.watch(ragged, probe=window[None], rows=None).dataset for window in windows]
    for name in ("entropy", "normalized_entropy", "effective_keys", "top_1", "even_weight", "first_token"):
        expected = sum(snapshot[name][0] * length for snapshot, length in zip(alone, lengths, strict=True)) / sum(
            lengths
        )
        for snapshot in range(2):
            np.testing.assert_allclose(watch.dataset[name][snapshot], expected, rtol=rtol, err_msg=name)
    np.testing.assert_allclose(watch.dataset["moved"][1], 0.0, atol=1e-7)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_scripted_parts_go_on_training() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5)))
    watched = nn.Sequential(nn.Embedding(23, 16), model().blocks[0], scripted).train()
    ss.watch(watched, probe=ids(), errors="raise")
    assert all(module.training for module in watched.modules())


def test_inference_mode_around_a_watch_or_a_snapshot() -> None:
    """What a watch keeps from snapshot to snapshot can be used outside of the mode, and a model's tensors inside."""
    watched = model()
    with torch.inference_mode():
        watch = ss.watch(watched, probe=ids(), rows=None, every=1, errors="raise")
        watched.register_buffer("cache", torch.ones(3))
        watch.step()
    watch.step()
    np.testing.assert_allclose(watch.dataset["moved"][1:], 0.0, atol=1e-7)
    assert torch.equal(watched.cache, torch.ones(3))
    watched(ids()).sum().backward()


def test_a_module_that_holds_its_watch_can_be_copied(tmp_path: Path) -> None:
    watched = model()
    watched.watch = ss.watch(watched, probe=ids(), every=1, store=tmp_path / "a.zarr", errors="raise")
    average = copy.deepcopy(watched)
    assert average.watch is watched.watch
    del average
    gc.collect()
    watched.watch.step()  # the store is still its own
    with pytest.raises(ss.StoreError, match=r"is writing .*: close what this process opened, or give another name"):
        ss.watch(watched, probe=ids(), store=tmp_path / "a.zarr")
    with pytest.raises(ss.InputError, match="a watch cannot be pickled: keep it outside of the model"):
        pickle.dumps(watched)


def test_a_function_may_show_other_windows_at_each_snapshot() -> None:
    windows = [3]
    watch = ss.watch(model(), probe=lambda watched: watched(ids(windows[0])), every=1, errors="raise")
    windows[0] = 5
    watch.step()
    assert np.isfinite(watch.dataset["entropy"]).all()


@pytest.mark.parametrize(
    ("change", "are_left"),
    [
        (lambda gpt: setattr(gpt.blocks[0], "attn", nn.Identity()), [False, True]),
        (lambda gpt: setattr(gpt, "blocks", gpt.blocks[:1]), [True, False]),
        (lambda gpt: setattr(gpt, "blocks", gpt.blocks[:0]), [False, False]),
    ],
    ids=["replaced", "removed", "all removed"],
)
def test_a_layer_that_attends_no_longer_is_said(change: Callable[[Any], object], are_left: list[bool]) -> None:
    watched = model()
    watch = ss.watch(watched, probe=ids(), every=1)
    change(watched)
    gone = (
        rf"blocks\.{are_left.index(False)}\.attn{'' if any(are_left) else r' .and 1 more.'} was not captured: make ano"
    )
    with pytest.warns(UserWarning, match=rf"the snapshot at step 1 is not whole \(the attention of {gone}"):
        watch.step()
    snapshot = watch.dataset.isel(step=1)
    assert snapshot["status"].item() == "partial"
    for name in ("entropy", "finite"):
        assert np.isfinite(snapshot[name]).all("head").values.tolist() == are_left
    assert {verdict.layer for verdict in watch.verdicts} <= {i for i, is_left in enumerate(are_left) if is_left}


class OfCache(GPT):
    """Appends its tokens to a cache, as a key-value cache grows with each call."""

    def forward(self, ids: Tensor, cache: Any) -> Tensor:  # type: ignore[override]
        cache.tokens = torch.cat([cache.tokens, ids], 1)
        return super().forward(cache.tokens)


@pytest.mark.filterwarnings("ignore:windows of repeated tokens are left out")
def test_what_the_model_changes_of_its_arguments_is_as_before_at_the_next_snapshot() -> None:
    cache = SimpleNamespace(tokens=ids(length=3))
    watch = ss.watch(OfCache(dropout=0.0), probe=(ids(), cache), every=1, errors="raise")
    watch.step()
    assert cache.tokens.shape == (3, 3)
    np.testing.assert_array_equal(watch.dataset["entropy"][1], watch.dataset["entropy"][0])


def test_a_model_that_cannot_be_checked_is_said() -> None:
    generator = torch.Generator().manual_seed(0)  # which nobody restores

    class Noisy(GPT):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(torch.randint(23, ids.shape, generator=generator))

    watch = ss.watch(Noisy(), probe=ids(), every=1)
    with pytest.warns(UserWarning, match="2 of 2 attention modules captured; not checked, since the model returns som"):
        watch.step()


def test_another_number_of_heads_is_a_missing_snapshot_with_a_sentence() -> None:
    watched = model()
    watch = ss.watch(watched, probe=ids(), every=1)
    watched.blocks[0].attn.heads *= 2
    with pytest.warns(UserWarning, match="blocks.0.attn has 4 heads, and had 2 when the watch was made"):
        watch.step()


class Routed(nn.Module):
    """A model that takes a softmax by the name of its argument, of what is no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = model()

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
        logits = self.gpt(input_ids)
        return torch.softmax(input=logits, dim=-1)


def test_ids_that_are_their_own_labels_are_repeated_as_ids() -> None:
    """Labels are shifted; which of the two comes first does not matter."""
    tokens = ids()
    values = [
        ss.watch(Routed(), probe=probe, errors="raise").dataset["prefix_matching"].values
        for probe in ({"labels": tokens, "input_ids": tokens}, {"input_ids": tokens, "labels": tokens.clone()})
    ]
    np.testing.assert_array_equal(*values)


def test_names_of_what_every_watch_records_are_taken() -> None:
    with pytest.raises(InputError, match="as what every watch records"):
        ss.HeadQuantity("finite", lambda rows: rows.entropy, "mine")
