"""Each recorded quantity against a slow implementation that goes row by row in Python."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import scansnap as ss
from scansnap.monitor.probe import Probe
from scansnap.monitor.quantities import HEAD_QUANTITIES, Profile, Rows, head_quantity, quantities
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
                numbers.setdefault("largest_logit", []).append(abs(max(row.values())))
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
    watch = ss.watch(model, probe=ids(WINDOWS, LENGTH), rows=None, errors="raise", record=("default", "top_5"))
    with torch.no_grad():
        model(ids(WINDOWS, LENGTH))
    names = dict(slow(model.weights, None))
    tokens = Probe(ids(WINDOWS, LENGTH), None, torch.device("cpu")).repeated_tokens(LENGTH, 1)
    assert tokens is not None
    assert torch.equal(tokens[:, :6], tokens[:, 6:])
    with torch.no_grad():
        model(tokens)
    names["prefix_matching"] = slow(model.weights, tokens)["prefix_matching"]
    apart = {"top_5", "moved", "qk_singular_value", "learned_sink", "dormant_rows"}  # below, and in other files
    places = {"offset", "offset_weight", "position", "position_weight", "token_id", "token_weight"}
    assert set(names) | apart | places == {q.name for q in quantities(("default", "top_5"))}
    assert np.isnan(watch.dataset["top_5"].values).all() == (mask == "window")
    for name, rows in names.items():
        np.testing.assert_allclose(watch.dataset[name].values[0, 0], expected(name, rows), rtol=2e-6, err_msg=name)
    assert watch.dataset["attention_kind"].values.tolist() == ["self" if mask == "all" else "causal"]


def test_layers_may_have_different_numbers_of_heads() -> None:
    """Each has the numbers that it has alone; NaN for heads that it lacks."""
    torch.manual_seed(0)
    layers = [nn.TransformerEncoderLayer(8, heads, 8, batch_first=True) for heads in (2, 4)]
    x = torch.randn(3, LENGTH, 8)
    both = ss.watch(nn.Sequential(*layers), probe=x, rows=None, errors="raise").dataset.isel(step=0)
    alone = ss.watch(layers[0], probe=x, rows=None, errors="raise").dataset.isel(step=0)
    for name in ("entropy", "largest_logit", "offset_weight", "offset"):
        np.testing.assert_array_equal(both[name][0, :2], alone[name][0])
        np.testing.assert_array_equal(np.isnan(both[name]), [[False, False, True, True], [False] * 4])


class SinkAttention(nn.Module):
    """Attention with the logit of a learned sink for each head, written by hand as in gpt-oss."""

    def __init__(self, inner: Given) -> None:
        super().__init__()
        self.inner, self.sinks = inner, nn.Parameter(torch.tensor([0.5, 3.0]))

    def forward(self, ids: Tensor) -> Tensor:
        self.inner(ids)
        column = self.sinks[:, None, None].expand(len(ids), -1, ids.shape[1], 1)
        scores = torch.cat([self.inner.weights, column], -1)
        return (scores - scores.amax(-1, keepdim=True)).softmax(-1)[..., :-1]


def test_a_learned_sink_takes_its_share() -> None:
    """Which is no key: what lies on keys is normalized for entropy and effective keys, and not for single weights."""
    model, probe = SinkAttention(Given()), ids(WINDOWS, LENGTH)
    snapshots = ss.watch(model, probe=probe, rows=None, errors="raise").dataset.isel(step=0, layer=1)
    with torch.no_grad():
        model(probe)
    logits = model.inner.weights.double()
    p = torch.cat([logits, model.sinks.detach()[:, None, None].expand(WINDOWS, -1, LENGTH, 1)], -1).softmax(-1)
    np.testing.assert_allclose(snapshots["learned_sink"], p[..., -1].mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(snapshots["top_1"], p[:, :, 1:, :-1].amax(-1).mean((0, 2)), rtol=1e-5)
    for name in ("entropy", "effective_keys"):
        np.testing.assert_allclose(snapshots[name], expected(name, slow(logits, None)[name]), rtol=1e-5)


@pytest.mark.parametrize("name", ["position_ids", "document_ids", "cu_seqlens"])
def test_packed_documents(name: str) -> None:
    """The first token of each row's own document is the possible sink; a head on it has not collapsed."""
    starts = torch.tensor([[0, 5, 9], [0, 3, 10]])[: 1 if name == "cu_seqlens" else 2]

    class OnFirst(nn.Module):
        def forward(self, input_ids: Tensor, **documents: Tensor) -> Tensor:
            t = torch.arange(LENGTH)
            document = (t >= starts[..., None]).sum(1)
            document = torch.cat([document, document[:1] * 0])[: len(input_ids)]  # repeated tokens are one document
            shown = (document[:, None] == document[:, :, None]) & (t[:, None] >= t)
            is_first = (document != document.roll(1, 1)) | (t == 0)
            key = 60.0 * is_first[:, None, :, None]
            return functional.scaled_dot_product_attention(torch.ones_like(key), key, key, shown[:, None])

    t = torch.arange(LENGTH)
    number = (t >= starts[..., None]).sum(1)
    boundaries = torch.tensor([*starts[0].tolist(), LENGTH], dtype=torch.int32)
    given = {"document_ids": number, "position_ids": t - starts.gather(1, number - 1), "cu_seqlens": boundaries}[name]
    probe = {"input_ids": ids(len(starts), LENGTH), name: given}
    watch = ss.watch(OnFirst(), probe=probe, rows=None, errors="raise")
    assert watch.dataset["first_token"].item() == pytest.approx(1.0, abs=1e-6)
    assert {verdict.name for verdict in watch.verdicts} == {"sink", "sparse"}


@pytest.mark.parametrize("mask", ["causal", "all"])
def test_padding_does_not_count(mask: str) -> None:
    """Nor do rows that see no key, as those before the first causal one."""
    model = Given(mask)
    real = torch.ones(WINDOWS, LENGTH, dtype=torch.long)
    real[0, :3], real[1, 8:] = 0, 0
    probe = {"ids": ids(WINDOWS, LENGTH), "attention_mask": real}
    watch = ss.watch(model, probe=probe, rows=None, errors="raise", record=("default", "top_5"))
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


def test_the_pattern_is_the_attention_of_the_first_window() -> None:
    model = Given()
    watch = ss.watch(model, probe=ids(WINDOWS, 60), errors="raise", tokens=lambda token: f"<{token}>")
    with torch.no_grad():
        model(ids(WINDOWS, 60))
    snapshots = watch.dataset
    assert snapshots["pattern"].shape == (1, 1, HEADS, 48, 48)
    np.testing.assert_allclose(snapshots["pattern"].values[0, 0], model.weights.softmax(3)[0, :, :48, :48], atol=1e-6)
    assert snapshots["token"].values.tolist() == [f"<{token}>" for token in ids(WINDOWS, 60)[0, :48].tolist()]


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
    snapshots = watch.dataset["moved"].values[:, 0]
    assert np.isnan(snapshots[0]).all()
    np.testing.assert_allclose(snapshots[1], 0.5 * (weights[1] - weights[0]).abs().sum(3).mean((0, 2)), rtol=1e-5)


class Vectors(nn.Module):
    """Attends with projections whose sizes are known; a first token with a value of its own size."""

    def __init__(self, sink: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.embedding = nn.Embedding(23, 8)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.sink = sink

    def forward(self, ids: Tensor) -> Tensor:
        return self.attend(self.embedding(ids))

    def attend(self, x: Tensor) -> Tensor:
        parts = (projection(x) for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in parts)
        v = torch.cat([self.sink * v[:, :, :1], v[:, :, 1:]], 2)
        self.parts, self.input = (q, k, v), x
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_quantities_of_queries_keys_and_values() -> None:
    """Against their definitions, row by row; a probe of one window, all rows, all quantities."""
    model, probe = Vectors(0.1), ids(1, LENGTH)
    model.q_proj.weight.data.mul_(3.0)
    watch = ss.watch(model, probe=probe, rows=None, record=tuple(HEAD_QUANTITIES), every=1, errors="raise")
    model(probe).square().sum().backward()
    watch.step(loss=model(probe).sum())
    found = {name: v.values[-1] for name, v in watch.dataset.data_vars.items() if name != "pattern"}
    q, k, v = (part.detach()[0] for part in model.parts)
    logits = (q @ k.mT / 2).masked_fill(~torch.ones(LENGTH, LENGTH).tril().bool(), -math.inf)
    p = logits.softmax(-1)
    sizes = v.norm(dim=-1) / v.norm(dim=-1).mean(1, keepdim=True)
    for h in range(2):
        best = logits[h].argmax(-1)
        cosine = functional.cosine_similarity(q[h], k[h, best], dim=-1)
        per_row = {
            "query_norm": q[h].norm(dim=-1) / 2,
            "key_norm": k[h, best].norm(dim=-1),
            "alignment": cosine,
            "output_size": (p[h, 1:] * sizes[h]).sum(-1),
            "sink_value": sizes[h, :1],
            "dormant_rows": ((p[h, 1:, 0] > 0.5) & ((p[h, 1:] * sizes[h]).sum(-1) <= 0.5)).float(),
            "distance": torch.stack([(p[h, t] * (t - torch.arange(LENGTH)).abs()).sum() for t in range(1, LENGTH)]),
            "head_similarity": functional.cosine_similarity(p[h, 1:], p[1 - h, 1:], dim=-1),
        }
        for name, values in per_row.items():
            assert found[name][0, h] == pytest.approx(float(values.mean()), rel=1e-5), name
        assert found["similar_head"][0, h] == 1 - h
        gradients = [m.weight.grad.unflatten(0, (2, 4))[h] for m in (model.q_proj, model.k_proj)]
        norm = math.sqrt(sum(float(g.square().sum()) for g in gradients))
        assert found["gradient_norm"][0, h] == pytest.approx(norm, rel=1e-5)
    assert found["loss"] == pytest.approx(model(probe).sum().item(), rel=1e-5)
    x = model.input.detach().abs()
    np.testing.assert_allclose(found["massive_activation"], float(x.amax() / x.median()), rtol=1e-5)


def test_where_most_attention_lies() -> None:
    """Which distance, position and token have most of it, against sums in Python, over three windows."""
    model, probe = Given(), ids(WINDOWS, LENGTH)
    found = ss.watch(model, probe=probe, rows=None, errors="raise").dataset.isel(step=0, layer=0)
    with torch.no_grad():
        model(probe)
    p = model.weights.softmax(3).tolist()
    for h in range(HEADS):
        sums: dict[tuple[str, int], list[float]] = {}
        for b, t in itertools.product(range(WINDOWS), range(1, LENGTH)):
            for s in range(t + 1):
                sums.setdefault(("offset", t - s), []).append(p[b][h][t][s])
                sums.setdefault(("position", s), []).append(p[b][h][t][s])
            for token in set(probe.unique().tolist()):
                on = [p[b][h][t][s] for s in range(t + 1) if probe[b, s] == token]
                sums.setdefault(("token", token), []).append(math.fsum(on))
        for name, place in (("offset", "offset"), ("position", "position"), ("token", "token_id")):
            rows = WINDOWS * (LENGTH - 1)
            means = {k: math.fsum(v) / len(v) for (n, k), v in sums.items() if n == name and 2 * len(v) >= rows}
            assert found[place].values[h] == max(means, key=means.__getitem__)
            assert found[f"{name}_weight"].values[h] == pytest.approx(max(means.values()), rel=1e-5)


def test_a_distance_counts_if_half_of_the_rows_reach_it() -> None:
    """All attention is on the first token: the farther, the larger the share of the few rows that reach it."""

    class OnFirst(nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            key = torch.where(torch.arange(LENGTH) == 0, 60.0, 0.0)[None, None, :, None].expand(len(ids), 1, -1, 1)
            return functional.scaled_dot_product_attention(torch.ones_like(key), key, key, is_causal=True)

    found = ss.watch(OnFirst(), probe=ids(WINDOWS, LENGTH), rows=None, errors="raise").dataset.squeeze()
    assert found["offset"].item() == 6  # of 11 rows with a choice 6 reach it, and one of these is at this distance
    assert found["offset_weight"].item() == pytest.approx(1 / 6)


def test_quantities_of_one_failing_profile_are_all_named() -> None:
    fails = False

    def profile(rows: Rows) -> Profile:
        return rows.nothing if fails else rows.by_offset  # type: ignore[attr-defined]

    record = [
        ss.HeadQuantity("largest", profile, "its largest mean", reduction="peak"),
        ss.HeadQuantity("place", profile, "where that is", reduction="place"),
    ]
    watch = ss.watch(Given(), probe=ids(), record=record, every=1)
    fails = True
    with pytest.warns(UserWarning, match="fails") as warned:
        watch.step()
    assert [str(warning.message).split("'")[1] for warning in warned] == ["largest", "place"]
    assert np.isnan(watch.dataset[["largest", "place"]].isel(step=1).to_dataarray()).all()


def test_a_profile_of_repeated_tokens() -> None:
    """A user's quantity; NaN where the probe has no token ids, and so no windows of repeated tokens."""

    @head_quantity(long_name="attention at the distance that has most of it", reduction="peak", sample="repeated")
    def repeated_offset(rows: Rows) -> Profile:
        return rows.by_offset

    of_probe = ss.HeadQuantity("probe_offset", repeated_offset.compute, "the same of the probe", reduction="peak")
    for model, probe, is_known in (
        (Given(), ids(), True),
        (nn.MultiheadAttention(8, 2), 3 * (torch.randn(5, 2, 8),), False),
    ):
        snapshots = ss.watch(
            model, probe=probe, record=("offset_weight", repeated_offset, of_probe), rows=None, errors="raise"
        ).dataset
        assert np.isfinite(snapshots["repeated_offset"].values).all() == is_known
        assert np.isfinite(snapshots["offset_weight"].values).all()
        np.testing.assert_array_equal(snapshots["probe_offset"], snapshots["offset_weight"])


def test_entropy_bound() -> None:
    """It holds for 20,000 rows of logits of every size, and is attained by one logit above others that are equal."""
    generator = torch.Generator().manual_seed(0)
    scale = torch.logspace(-2, 1.5, 100)[:, None, None, None]
    logits = scale * torch.randn(100, 4, 50, 9, generator=generator, dtype=torch.float64)
    sharp = torch.zeros(1, 1, 50, 9, dtype=torch.float64)
    sharp[..., 3] = torch.linspace(0, 30, 50)
    for values, is_attained in ((logits, False), (sharp, True)):
        shape = values.shape[:3]
        rows = Rows(
            values.softmax(-1), values, torch.full(shape, 9), torch.zeros(shape[0], 50), torch.zeros(shape[0], 50), True
        )
        margin = HEAD_QUANTITIES.member("entropy_margin").compute(rows)
        assert (margin >= -1e-9).all()
        assert not is_attained or (margin <= 1e-9).all()


def test_far_weight() -> None:
    """Of 1,600 tokens that attend evenly, row t > 1,000 has (t - 1,000)/(t + 1) of its attention far away."""

    class Even(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    record = ("far_weight", "head_similarity")
    watch = ss.watch(Even(), probe=torch.zeros(1, 1, 1600, 2), rows=None, record=record, errors="raise")
    assert np.isnan(watch.dataset["head_similarity"].item())  # there is no other head
    expected = np.mean([(t - 1000) / (t + 1) for t in range(1001, 1600)])
    assert watch.dataset["far_weight"].item() == pytest.approx(expected, rel=1e-5)
