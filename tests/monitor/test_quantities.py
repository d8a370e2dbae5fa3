"""Each recorded quantity against a slow implementation that goes row by row in Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import scansnap as ss
from scansnap.monitor.probe import Probe
from scansnap.monitor.quantities import HEAD_QUANTITIES, Rows, head_quantity
from tests.monitor.small_models import ids

LENGTH, WINDOWS, HEADS = 12, 3, 2


class Given(nn.Module):
    """Attends with given queries and keys, causally, in a window of four keys, or to all; `ids` select windows."""

    def __init__(self, mask: str = "causal") -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.query, self.key = (nn.Parameter(1.5 * torch.randn(23, HEADS, 4, generator=generator)) for _ in range(2))
        self.mask = mask

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        positions = torch.arange(ids.shape[1])
        query = self.query[ids].transpose(1, 2) + torch.sin(positions)[:, None]
        key = self.key[ids].transpose(1, 2) + torch.cos(positions)[:, None]
        distance = positions[:, None] - positions
        shown = {"causal": distance >= 0, "window": (distance >= 0) & (distance < 4), "all": distance > -99}[self.mask]
        mask = shown[None, None].expand(len(ids), 1, -1, -1)
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, None, :].bool()
        self.weights = (query @ key.transpose(2, 3) / 2).masked_fill(~mask, -math.inf)
        return functional.scaled_dot_product_attention(query, key, key, mask)


def slow(logits: Tensor, tokens: Tensor | None, real: Tensor | None = None) -> dict[str, list[list[float]]]:
    """Every quantity of every head, from logits (B, H, T, S): each row a list of numbers in Python."""
    rows: dict[str, list[list[float]]] = {}
    for h in range(logits.shape[1]):
        numbers: dict[str, list[float]] = {}
        for b in range(len(logits)):
            first = 0 if real is None else real[b].tolist().index(1)
            for t in range(logits.shape[2]):
                if real is not None and not real[b, t]:
                    continue
                row = {s: z for s, z in enumerate(logits[b, h, t].tolist()) if z > -math.inf}
                total = math.fsum(math.exp(z) for z in row.values())
                p = {s: math.exp(z) / total for s, z in row.items()}
                numbers.setdefault("largest_logit", []).append(max(row.values()))
                if len(row) < 2:
                    continue
                entropy = -math.fsum(x * math.log(x) for x in p.values())
                ranked = sorted(p.values(), reverse=True)
                numbers.setdefault("entropy", []).append(entropy)
                numbers.setdefault("normalized_entropy", []).append(entropy / math.log(len(row)))
                numbers.setdefault("effective_keys", []).append(1 / math.fsum(x * x for x in ranked))
                numbers.setdefault("top_1", []).append(ranked[0])
                numbers.setdefault("even_weight", []).append(1 / len(row))
                if len(row) > 5:
                    numbers.setdefault("top_5", []).append(math.fsum(ranked[:5]))
                numbers.setdefault("first_token", []).append(p.get(first, 0.0))
                if t:
                    numbers.setdefault("previous_token", []).append(p.get(t - 1, 0.0))
                if tokens is not None:
                    x = tokens[b].tolist()
                    after = [s for s in p if 0 < s <= t and x[s - 1] == x[t]]
                    if x[t] in x[:t]:
                        numbers.setdefault("prefix_matching", []).append(math.fsum(p[s] for s in after))
        for name, values in numbers.items():
            rows.setdefault(name, []).append(values)
    return rows


def expected(name: str, rows: list[list[float]]) -> list[float]:
    return [max(values) if name == "largest_logit" else math.fsum(values) / len(values) for values in rows]


@pytest.mark.parametrize("mask", ["causal", "window", "all"])
def test_quantities_of_all_rows(mask: str) -> None:
    model = Given(mask)
    watch = ss.watch(model, probe=ids(WINDOWS, LENGTH), rows=None, errors="raise")
    with torch.no_grad():
        model(ids(WINDOWS, LENGTH))
    names = dict(slow(model.weights, None))
    tokens = Probe(ids(WINDOWS, LENGTH), None, torch.device("cpu")).repeated_tokens(LENGTH, 1)
    assert tokens is not None
    assert torch.equal(tokens[:, :6], tokens[:, 6:])
    with torch.no_grad():
        model(tokens)
    names["prefix_matching"] = slow(model.weights, tokens)["prefix_matching"]
    assert set(names) | {"top_5", "moved", "qk_singular_value", "learned_sink"} == set(HEAD_QUANTITIES)
    assert np.isnan(watch.dataset["top_5"].values).all() == (mask == "window")
    for name, rows in names.items():
        np.testing.assert_allclose(watch.dataset[name].values[0, 0], expected(name, rows), rtol=2e-6, err_msg=name)
    assert watch.dataset["attention_kind"].values.tolist() == ["self" if mask == "all" else "causal"]


def test_padding_does_not_count() -> None:
    model = Given("all")
    real = torch.ones(WINDOWS, LENGTH, dtype=torch.long)
    real[0, :3], real[1, 8:] = 0, 0
    probe = {"ids": ids(WINDOWS, LENGTH), "attention_mask": real}
    watch = ss.watch(model, probe=probe, rows=None, errors="raise")
    with torch.no_grad():
        model(**probe)
    for name, rows in slow(model.weights, None, real).items():
        np.testing.assert_allclose(watch.dataset[name].values[0, 0], expected(name, rows), rtol=2e-6, err_msg=name)


def test_sampled_rows_are_those_of_the_probe_and_unbiased() -> None:
    """2000 draws of 4 rows from 12 in each of 3 windows: the mean over draws is within 5 standard errors of the mean
    over all rows (false alarms: 6e-7 for each of 2 heads), and varies less than with independent draws."""
    model = Given()
    with torch.no_grad():
        model(ids(WINDOWS, LENGTH))
    p = model.weights.softmax(3)
    values = torch.special.entr(p).sum(3)  # (B, H, T)
    means = []
    for seed in range(2000):
        probe = Probe(ids(WINDOWS, LENGTH), 12, torch.device("cpu"), seed=seed)
        piece = next(probe.pieces(None, repeat=False))
        rows = probe.positions(piece, WINDOWS, LENGTH)
        assert rows.shape == (WINDOWS, 4)
        means.append(values.take_along_dim(rows[:, None], 2).mean((0, 2)))
    drawn = torch.stack(means)
    error = drawn.std(0) / math.sqrt(len(drawn))
    assert ((drawn.mean(0) - values.mean((0, 2))).abs() < 5 * error).all()
    independent = values.var(2, correction=0).mean(0) / 12
    assert (drawn.var(0) < independent).all()


def test_a_quantity_of_the_users_own() -> None:
    """That of the documentation, for two tokens, in a causal model."""

    @head_quantity(long_name="attention on the two tokens before", units="1")
    def recent(rows: Rows) -> Tensor:
        back = rows.positions[:, :, None] - torch.arange(rows.weights.shape[-1])
        return rows.of_more_than(3, (rows.weights * ((back > 0) & (back <= 2))[:, None]).sum(-1))

    model = Given("causal")
    watch = ss.watch(model, probe=ids(), record=("entropy", recent), rows=None, errors="raise")
    with torch.no_grad():
        model(ids())
    weights = model.weights.softmax(3)
    mean = sum(weights[:, :, t, t - 2 : t].sum(-1).mean(0) for t in range(3, LENGTH)) / (LENGTH - 3)
    np.testing.assert_allclose(watch.dataset["recent"].values[0, 0], mean, rtol=1e-5)
    assert watch.dataset["recent"].attrs["long_name"] == "attention on the two tokens before"
    assert set(watch.dataset.data_vars) == {"entropy", "recent", "finite", "pattern"}


def test_the_pattern_is_the_attention_of_the_first_window() -> None:
    model = Given()
    watch = ss.watch(model, probe=ids(WINDOWS, 60), errors="raise", tokens=lambda token: f"<{token}>")
    with torch.no_grad():
        model(ids(WINDOWS, 60))
    looks = watch.dataset
    assert looks["pattern"].shape == (1, 1, HEADS, 48, 48)
    np.testing.assert_allclose(looks["pattern"].values[0, 0], model.weights.softmax(3)[0, :, :48, :48], atol=1e-6)
    assert looks["token"].values.tolist() == [f"<{token}>" for token in ids(WINDOWS, 60)[0, :48].tolist()]


def test_moved_is_the_share_that_moved() -> None:
    model = Given()
    watch = ss.watch(model, probe=ids(WINDOWS, LENGTH), rows=None, every=1, errors="raise")
    weights = []
    for _ in range(2):
        with torch.no_grad():
            model(ids(WINDOWS, LENGTH))
            weights.append(model.weights.softmax(3).double()[:, :, 1:])
            model.query += 0.3 if len(weights) == 1 else 0.0
        watch.step()
    looks = watch.dataset["moved"].values[:, 0]
    assert np.isnan(looks[0]).all()
    np.testing.assert_allclose(looks[1], 0.5 * (weights[1] - weights[0]).abs().sum(3).mean((0, 2)), rtol=1e-5)
