"""Attention sinks (Guo et al. 2024): why a head sends its attention to a token that says nothing.

The reduction, `Sink`
---------------------
A query should predict its Markov successor, with probabilities p, which the rest of the model knows already: ln p.
The head adds the values that it attends to.  Its logit is alpha on the start token and 0 on the L others; the value of
the start token is beta, that of token k is xi e_k, as copying needs elsewhere.  With b = e^alpha / (e^alpha + L) and c
the frequencies of tokens in a context, the head adds

    delta = b beta + (1 - b) xi c,      loss = mean over contexts of KL(p || softmax(ln p + delta)).

With rho = p - softmax(ln p + delta), the gradient of J = -loss is

    dJ/dbeta = b E[rho],      dJ/dalpha = b (1 - b) E[rho . (beta - xi c)].

rho and the loss are computed without cancellation: with x = delta - p . delta, m = sum p (e^x - 1 - x),

    softmax - p = p (expm1(x) - m) / (1 + m),      KL = ln(1 + m).

The entries of rho sum to zero, so the sum of beta never changes.  `theory.py` derives what happens late.

The whole model, `BigramBackcopy`
---------------------------------
Sequences start with the start token s.  A token is followed by its Markov successor, but a trigger token is followed by
a copy of the token before it.  One layer and one head, with one-hot embeddings:

    logits_i = U[x_i] + sum_{j <= i} a_ij W[x_j],      score_ij = Z[x_i, x_j] + r[x_i] 1[j = i - 1],

and a_i = softmax(score_i), or ReLU(1 + score_i) / i, which also starts at 1/i.  U is what the rest of the model adds.
Positions with the same token k have the same score, but for the previous one.  So the attention A_ik on a token is
o_ik, of the n_ik other positions that hold k, and for k = x_{i-1} also p_i, of the previous position: A = o + p Q with
Q the one-hot previous tokens.  With rho_i = e_target - softmax(logits_i) and X the one-hot tokens, the gradient of J is

    dU = X' rho,    dW = A' rho,    dA = rho W',    do = o o (dA - sum A dA)  or  n o 1[o > 0] o dA / i,
    dp the same at k = x_{i-1} with n = 1,    dZ = X' (do + dp Q),    dr = X' dp,

each divided by the number of predictions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from scansnap.runtime.errors import InputError
from scansnap.runtime.machine import one_tensor_thread
from scansnap.systems.quantity import quantity
from scansnap.systems.system import SYSTEMS, Arrays, Block, Preset, Seeds, State, System, Tensors, softmax_residual
from scansnap.validation.checks import FloatArray
from scansnap.validation.options import option, options

if TYPE_CHECKING:
    from torch import Tensor


# --- the reduction ---------------------------------------------------------------------------------------------------


@quantity(long_name="attention on the start token")
def sink_attention(now: State) -> ArrayLike:
    """b."""
    assert isinstance(now.system, Sink)
    return 1 / (1 + now.system.context * np.exp(-np.asarray(now.parameters["alpha"], np.float64)))


@quantity(long_name="norm of the start token's value, mean subtracted", full_precision=True)
def sink_value(now: State) -> ArrayLike:
    """|beta - mean|: adding a constant to all logits changes nothing."""
    beta = np.asarray(now.parameters["beta"], np.float64)
    return np.linalg.norm(beta - beta.mean(-1, keepdims=True), axis=-1)


@quantity(long_name="sum of the start token's value")
def value_sum(now: State) -> ArrayLike:
    """What the flow, and gradient descent, leave as it is."""
    return np.asarray(now.parameters["beta"], np.float64).sum(-1)


@SYSTEMS.register("sinks")
@options
class Sink(System):
    """One query's logit on a start token and the start token's value, among tokens with copying values."""

    title = "Attention sinks: a sink's logit and its value, with copying values elsewhere"
    source = "Guo et al. 2024 (arXiv 2410.13835), reduced"
    quantities = (sink_attention, sink_value)
    invariants = (value_sum,)
    presets: ClassVar[Mapping[str, Preset]] = {
        "sink": Preset(
            "attention moves to the start token while its value drains",
            train={"lr_alpha": 1.0, "lr_beta": 1.0, "steps": 2000, "seeds": (0, 1, 2)},
            flow={"lr_alpha": 1.0, "lr_beta": 1.0, "times": (1, 10, 100, 1e3, 1e4, 1e6, 1e8)},
        )
    }

    tokens: int = option("Tokens besides the start token.", default=8, least=2, most=10_000)
    context: int = option("Tokens L in a context.", default=20, least=1)
    contexts: int = option("Contexts over which the loss is averaged.", default=5, least=1)
    copying: float = option("Value ξ that each token adds to its own logit.", default=5.0, least=0.0)
    value_scale: float = option("Standard deviation of the start of the start token's value.", default=0.0, least=0.0)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {
            "alpha": Block("lr_alpha", (), "logit of the start token"),
            "beta": Block("lr_beta", ("token",), "value of the start token"),
        }

    @property
    def coords(self) -> Mapping[str, Sequence[Any]]:
        return {"token": range(self.tokens)}

    def start(self, seeds: Seeds) -> Arrays:
        drawn = [np.random.default_rng([int(seed), 1]).normal(size=self.tokens) for seed in seeds]
        return {"alpha": np.zeros(len(seeds)), "beta": self.value_scale * np.stack(drawn)}

    def data(self, seeds: Seeds, step: int | None) -> Arrays:
        targets, frequencies = [], []
        for seed in seeds:
            rng = np.random.default_rng([int(seed), 0])
            targets.append(rng.dirichlet(np.ones(self.tokens)))
            drawn = rng.multinomial(self.context, rng.dirichlet(np.ones(self.tokens)), size=self.contexts)
            frequencies.append(drawn / self.context)
        return {"target": np.stack(targets), "frequency": np.stack(frequencies)}

    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        import torch

        alpha, beta = parameters["alpha"][:, None, None], parameters["beta"][:, None]
        p, c = data["target"][:, None], data["frequency"]
        lead = alpha - math.log(self.context)
        on_sink, on_others = torch.sigmoid(lead), torch.sigmoid(-lead)
        delta = on_sink * beta + on_others * self.copying * c
        x = delta - (p * delta).sum(-1, keepdim=True)
        m = (p * _expm1_less_x(x)).sum(-1, keepdim=True)
        rho = -p * (torch.expm1(x) - m) / (1 + m)
        toward_sink = (rho * (beta - self.copying * c)).sum(-1).mean(1)
        gradient = {
            "alpha": (on_sink * on_others)[:, 0, 0] * toward_sink,
            "beta": on_sink[:, 0] * rho.mean(1),
        }
        return gradient, torch.log1p(m)[..., 0].mean(1)


def _expm1_less_x(x: Tensor) -> Tensor:
    """exp(x) - 1 - x with all digits: by its series where |x| < 1/16, beyond which a difference loses less than two."""
    import torch

    is_small = x.abs() < 1 / 16
    small = torch.where(is_small, x, 0.0)
    series = small / math.factorial(10)
    for k in range(9, 2, -1):
        series = (series + 1 / math.factorial(k)) * small
    series = series + 1 / 2
    return torch.where(is_small, small**2 * series, torch.expm1(x) - x)


# --- the whole model -------------------------------------------------------------------------------------------------


@quantity("token", long_name="mean attention of each query token on the start token")
def attention_on_start(now: State) -> ArrayLike:
    """a_i0 by the query's token, over the recorded sequences; NaN for tokens that do not occur."""
    import torch

    system, tokens = now.system, np.asarray(now.data["tokens"])
    assert isinstance(system, BigramBackcopy)
    parameters = {name: torch.as_tensor(np.asarray(values, np.float64)) for name, values in now.parameters.items()}
    with one_tensor_thread():  # threads that wait for each other cost more than this does
        _, previous, shares, _ = system.attention(parameters, torch.as_tensor(tokens))
        weights = _by_token(shares, previous)[..., -1].numpy()  # it occurs once
    queries = tokens[:, :, 1:-1].reshape(len(tokens), -1, 1) == np.arange(system.tokens)
    with np.errstate(invalid="ignore"):
        return (weights[..., None] * queries).sum(1) / queries.sum(1)


@quantity("key", long_name="norm of each token's value, mean subtracted")
def value_norm(now: State) -> ArrayLike:
    """|W[x] - mean|; the last is the start token's."""
    values = np.asarray(now.parameters["values"], np.float64)
    return np.linalg.norm(values - values.mean(-1, keepdims=True), axis=-1)


@SYSTEMS.register("bigram-backcopy")
@options
class BigramBackcopy(System):
    """One layer of attention on Markov sequences in which trigger tokens copy the token before them."""

    title = "Attention sinks in one layer: Markov tokens, and triggers that copy"
    source = "Guo et al. 2024 (arXiv 2410.13835)"
    quantities = (attention_on_start, value_norm)
    samples = True
    presets: ClassVar[Mapping[str, Preset]] = {
        "bigram-backcopy": Preset(
            "tokens that copy nothing attend to the start token; triggers attend to the token before them",
            train={"lr": 0.03, "optimizer": "adam", "steps": 1000, "record_every": 10, "seeds": (0,)},
        )
    }

    tokens: int = option("Tokens besides the start token.", default=8, least=3, most=1000)
    triggers: int = option("Tokens that are followed by a copy of the one before.", default=2, least=0)
    length: int = option("Predictions in a sequence.", default=24, least=2, most=4096)
    sequences: int = option("Sequences in an update.", default=16, least=1, most=4096)
    attention_map: Literal["softmax", "relu"] = option(
        "The map from scores to attention: softmax, or ReLU(1 + score) over length.", default="softmax"
    )

    def check_together(self) -> None:
        if self.triggers > self.tokens - 2:
            raise InputError(f"triggers is {self.triggers} of {self.tokens} tokens: leave at least two others.")

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {
            "bigram": Block("lr", ("token", "output"), "U, logits that need no attention"),
            "scores": Block("lr", ("token", "key"), "Z, attention scores"),
            "previous": Block("lr", ("token",), "r, score of the previous position"),
            "values": Block("lr", ("key", "output"), "W, values; the last is the start token's"),
        }

    @property
    def coords(self) -> Mapping[str, Sequence[Any]]:
        return {"token": range(self.tokens), "output": range(self.tokens), "key": range(self.tokens + 1)}

    def start(self, seeds: Seeds) -> Arrays:
        V, R = self.tokens, len(seeds)
        shapes = {"bigram": (V, V), "scores": (V, V + 1), "previous": (V,), "values": (V + 1, V)}
        return {name: np.zeros((R, *shape)) for name, shape in shapes.items()}

    def transitions(self, seed: int) -> FloatArray:
        """The Markov chain (V, V) of a seed; rows of triggers, the first tokens, are not used."""
        return _transitions((seed,), self.tokens)[0]

    def data(self, seeds: Seeds, step: int | None) -> Arrays:
        """Sequences (R, B, T + 2): the start token, then a token that is no trigger, then T more."""
        stream, shape = 0 if step is None else step + 1, (self.length, self.sequences)
        generators = [np.random.default_rng([int(seed), 1, stream]) for seed in seeds]
        cumulative = _transitions(tuple(seeds.tolist()), self.tokens).cumsum(2)
        drawn = np.empty((len(seeds), self.sequences, self.length + 2), np.int64)
        drawn[..., 0] = self.tokens
        drawn[..., 1] = [rng.integers(self.triggers, self.tokens, self.sequences) for rng in generators]
        chances = np.stack([rng.random(shape) for rng in generators], 1)  # (T, R, B)
        runs = np.arange(len(seeds))[:, None]
        for i, chance in enumerate(chances, start=2):
            now = drawn[..., i - 1]
            following = (cumulative[runs, now] < chance[..., None]).sum(2).clip(max=self.tokens - 1)
            drawn[..., i] = np.where(now < self.triggers, drawn[..., i - 2], following)
        return {"tokens": drawn}

    def attention(self, parameters: Tensors, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """X (R, N, V) of the N = B T queries, their previous tokens (R, N, 1), (o, p) of shape (R, N, V + 2), and what
        multiplies dA in d(o, p)."""
        import torch

        keys = torch.nn.functional.one_hot(tokens[..., :-1], self.tokens + 1).to(parameters["scores"].dtype)
        query, previous = keys[:, :, 1:, : self.tokens].flatten(1, 2), tokens[..., :-2].flatten(1)[..., None]
        others = (keys.cumsum(2)[:, :, 1:] - keys[:, :, :-1]).flatten(1, 2)  # n
        scores = query @ parameters["scores"]
        last = scores.gather(-1, previous) + query @ parameters["previous"][..., None]
        scores, counts = torch.cat([scores, last], -1), torch.cat([others, torch.ones_like(last)], -1)
        if self.attention_map == "relu":
            counts = counts / counts.sum(-1, keepdim=True)
            return query, previous, counts * torch.relu(1 + scores), counts * (scores > -1)
        scores = scores.masked_fill(counts == 0, -torch.inf)
        odds = counts * torch.exp(scores - scores.detach().amax(-1, keepdim=True))
        shares = odds / odds.sum(-1, keepdim=True)
        return query, previous, shares, shares

    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        import torch

        W, target = parameters["values"], data["tokens"][..., 2:].flatten(1)
        query, previous, shares, slopes = self.attention(parameters, data["tokens"])
        attended = _by_token(shares, previous)  # A
        residual, loss = softmax_residual(query @ parameters["bigram"] + attended @ W, target)
        rho = residual / target.shape[1]
        push = rho @ W.mT  # dA
        if self.attention_map == "softmax":
            push = push - (attended * push).sum(-1, keepdim=True)
        moved = slopes * torch.cat([push, push.gather(-1, previous)], -1)  # d(o, p)
        gradient = {
            "bigram": query.mT @ rho,
            "scores": query.mT @ _by_token(moved, previous),
            "previous": (query.mT @ moved[..., -1:])[..., 0],
            "values": attended.mT @ rho,
        }
        return gradient, loss.mean(1)


@lru_cache(maxsize=1)
def _transitions(seeds: tuple[int, ...], tokens: int) -> FloatArray:
    """The Markov chains (R, V, V) of seeds, which every step needs."""
    chains = [np.random.default_rng([seed, 0]).dirichlet(np.ones(tokens), size=tokens) for seed in seeds]
    return np.stack(chains)


def _by_token(parts: Tensor, previous: Tensor) -> Tensor:
    """o + p Q of (o, p)."""
    return parts[..., :-1].scatter_add(-1, previous, parts[..., -1:])
