"""JoMA: a hidden layer and attention trained together (Tian et al., ICLR 2024).

A context x has the frequencies x_l of M contextual tokens and a query m.  Attention gives

    b_l = x_l z_ml (linear),   b_l = x_l e^{z_ml} (exp),   b_l = x_l e^{z_ml} / sum_j x_j e^{z_mj} (softmax),

hidden unit k has h_k = phi(a_k), a_k = w_k . f, f = U_C b + u_m.  Embeddings are orthonormal, so that
a_k = v_k . b + r_mk with v_k = U_C' w_k and r_mk = u_m . w_k: training w_k is training v_k and r_mk at the same rate.
An output layer C, which is not trained, gives logits C'h.  All queries share v.

Gradient
--------
With g_k = (C residual)_k phi'(a_k), the gradient of J by a_k, and s_l = sum_k g_k v_lk = dJ/db_l, means over contexts:

    dv_lk = E[b_l g_k],   dr_mk = E[g_k],   dz_ml = E[x_l s_l] (linear), E[b_l s_l] (exp), E[b_l (s_l - sum_j b_j s_j)]
    (softmax; s is counted from the s of the largest b, since once that b is near 1 the difference loses all digits).

Invariants
----------
sum_k v_lk dv_lk = E[b_l s_l], over the contexts of all queries.  For exp attention this is sum_m dz_ml, and for linear
attention sum_m z_ml dz_ml.  So with equal rates sum_m z_ml - 1/2 sum_k v_lk^2 (exp) and sum_m z_ml^2 - sum_k v_lk^2
(linear) do not change along the flow.  With one query this is the paper's statement; with several, only the sum over
queries is conserved.  With softmax sum_l dz_ml = 0, so that the mean logit is constant, and no more than that is.

A step of rate r of gradient descent changes the exponential one by -r^2/2 sum_k dv_lk^2, and the linear one by
r^2 (sum_m dz_ml^2 - sum_k dv_lk^2), exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.runtime.errors import InputError
from scansnap.systems.quantity import quantity
from scansnap.systems.system import SYSTEMS, Arrays, Block, Preset, Seeds, State, System, Tensors, softmax_residual
from scansnap.validation.checks import FloatArray
from scansnap.validation.options import option, options

if TYPE_CHECKING:
    from torch import Tensor


START, DATA = 0, 1
"""Streams of random numbers."""


def _weights(now: State) -> FloatArray:
    """The share of each token in the attention of each context (R, query, context, token); |b| for linear attention."""
    x, z = now.data["x"], now.parameters["z"][:, :, None]
    assert isinstance(now.system, JoMA)
    is_linear = now.system.attention_map == "linear"
    b = np.abs(x * z) if is_linear else x * np.exp(z - z.max(-1, keepdims=True))  # a factor cancels
    return np.asarray(b / np.maximum(b.sum(-1, keepdims=True), np.finfo(float).tiny))


@quantity("query", "token", long_name="attention, mean over contexts")
def attention(now: State) -> ArrayLike:
    return _weights(now).mean(2)


@quantity("query", long_name="entropy of attention, mean over contexts", units="nat")
def entropy(now: State) -> ArrayLike:
    from scipy.special import entr  # takes long to import

    return entr(_weights(now)).sum(-1).mean(2)


@quantity("query", "token", long_name="estimate of z but for a constant")
def estimate(now: State) -> ArrayLike:
    """½ Σ v² − ½ Σ ‖v‖² b̄, the paper's estimate for softmax attention; b̄ is the mean of x, as in the authors' code."""
    half = (now.parameters["v"] ** 2).sum(-1)[:, None] / 2  # (R, 1, token)
    return half - half.sum(-1, keepdims=True) * now.data["x"].mean(2)


@quantity("token", long_name="what the flow conserves")
def conserved(now: State) -> ArrayLike:
    """Σ_m z − ½ Σ_k v² (exp), Σ_m z² − Σ_k v² (linear), or the mean of z, the same for all tokens (softmax)."""
    z, squares = now.parameters["z"], (now.parameters["v"] ** 2).sum(-1)
    assert isinstance(now.system, JoMA)
    if now.system.attention_map == "linear":
        return (z**2).sum(1) - squares
    if now.system.attention_map == "exp":
        return z.sum(1) - squares / 2
    return np.broadcast_to(z.mean((1, 2))[:, None], squares.shape)


@SYSTEMS.register("joma")
@options
class JoMA(System):
    """Attention of each query and hidden units, trained together below a fixed output layer.

    >>> run = ss.flow(ss.SYSTEMS.member("joma"), lr_v=1.0, lr_z=1.0, times=[1, 10])
    >>> run["attention"].dims
    ('run', 'time', 'query', 'token')
    """

    title = "JoMA: hidden layer and attention trained together"
    source = "Tian et al., ICLR 2024"
    quantities = (attention, entropy, estimate)
    invariants = (conserved,)
    presets: ClassVar[Mapping[str, Preset]] = {
        "joma": Preset(
            "attention becomes sparse, then denser again, because it learns a hundred times as fast as hidden units",
            {"concentration": 0.3},
            train={"lr_v": 0.02, "lr_z": 2.0, "steps": 12_000, "record_every": 100, "seeds": (0, 5)},
            flow={"lr_v": 1.0, "lr_z": 100.0, "times": tuple(np.geomspace(1, 1e6, 25).tolist())},
        ),
        "joma-figure-2": Preset(
            "the paper's Figures 2 and 3: softmax attention follows its estimate in direction",
            {"tokens": 20, "hidden": 20, "classes": 20, "contexts": 20, "output": "identity", "activation": "linear"}
            | {"inputs": "bump", "start_scale": 0.01},
            train={"lr_v": 0.1, "lr_z": 0.4, "steps": 2000, "record": ("loss", "entropy", "z", "v", "estimate")},
            flow={"lr_v": 1.0, "lr_z": 4.0, "times": tuple(np.geomspace(1, 200, 20).tolist())},
        ),
    }

    tokens: int = option("Contextual tokens.", default=12, least=1)
    hidden: int = option("Hidden units.", default=8, least=1)
    classes: int = option("Classes, or outputs of the squared objective.", default=8, least=1)
    contexts: int = option("Contexts of each query.", default=16, least=1)
    queries: int = option("Queries, which share the hidden layer.", default=1, least=1)
    attention_map: Literal["linear", "exp", "softmax"] = option("How logits become attention.", default="softmax")
    activation: Literal["linear", "relu", "square", "gelu", "tanh"] = option(
        "Nonlinearity of hidden units.", default="gelu"
    )
    objective: Literal["cross_entropy", "constant", "squared"] = option(
        "What hidden units learn from: cross-entropy, the gradient that it has for equal logits (constant), or "
        "squared errors from random linear functions of the context.",
        default="cross_entropy",
    )
    output: Literal["identity", "random"] = option(
        "The output layer: one hidden unit for each class, or random.", default="random"
    )
    inputs: Literal["dirichlet", "bump", "single"] = option(
        "Contexts: random; with a bump over half of the tokens that moves with the class; or of one token each.",
        default="dirichlet",
    )
    concentration: float = option(
        "Of the Dirichlet distribution; if small, contexts have few tokens.", default=1.0, least=1e-3
    )
    residual: bool = option("Whether hidden units see the query's own embedding.", default=True)
    start_scale: float = option("Standard deviation of the start.", default=0.1, least=0, most=1e3)

    def check_together(self) -> None:
        if self.output == "identity" and self.hidden != self.classes:
            raise InputError(
                f"output is identity with {self.hidden} hidden units and {self.classes} classes: give equal numbers, "
                "or output='random'."
            )
        if self.inputs == "single" and self.contexts % self.tokens:
            raise InputError(
                f"inputs is single with {self.contexts} contexts and {self.tokens} tokens: give a multiple of the "
                "tokens."
            )

    @property
    def blocks(self) -> Mapping[str, Block]:
        blocks = {
            "v": Block("lr_v", ("token", "hidden"), "weights of hidden units on tokens"),
            "z": Block("lr_z", ("query", "token"), "attention logits"),
        }
        return blocks | ({"r": Block("lr_v", ("query", "hidden"), "weights on the query")} if self.residual else {})

    @property
    def coords(self) -> Mapping[str, Sequence[Any]]:
        return {"query": range(self.queries), "token": range(self.tokens), "hidden": range(self.hidden)}

    def start(self, seeds: Seeds) -> Arrays:
        draws = [np.random.default_rng([int(seed), START]) for seed in seeds]
        blocks = {
            name: self.start_scale * np.stack([draw.normal(size=self._shape(block)) for draw in draws])
            for name, block in self.blocks.items()
        }
        if self.attention_map == "linear":
            blocks["z"] += 1.0  # where b = x, as for the other maps at z = 0
        return blocks

    def _shape(self, block: Block) -> tuple[int, ...]:
        return tuple(len(self.coords[dim]) for dim in block.dims)

    def data(self, seeds: Seeds, step: int | None) -> Arrays:
        drawn = [self._draw(np.random.default_rng([int(seed), DATA])) for seed in seeds]
        return {name: np.stack([arrays[name] for arrays in drawn]) for name in drawn[0]}

    def _draw(self, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
        """x (query, context, token), labels, the output layer (hidden, class), and targets of the squared objective."""
        shape = (self.queries, self.contexts, self.tokens)
        if self.inputs == "dirichlet":
            x = rng.dirichlet(np.full(self.tokens, self.concentration), shape[:2])
        elif self.inputs == "bump":  # as in the authors' program for Figures 2 and 3
            x, distinct = rng.random(shape) / 2, max(1, self.tokens // 2)
            center = np.arange(self.contexts)[:, None] / self.contexts * distinct
            x[..., :distinct] = np.exp(-((np.arange(distinct) - center) ** 2) / (0.3 * distinct**2))
            x /= x.sum(-1, keepdims=True)
        else:
            x = np.broadcast_to(np.eye(self.tokens)[np.arange(self.contexts) % self.tokens], shape)
        if self.output == "identity":
            output = np.eye(self.hidden)
        else:
            output = rng.normal(size=(self.hidden, self.classes)) / math.sqrt(self.hidden)
        arrays = {"x": np.asarray(x), "output": output, "label": np.tile(self.labels, (self.queries, 1))}
        if self.objective == "squared":
            arrays["target"] = x @ rng.uniform(1.0, 4.0, (self.tokens, self.classes))
        return arrays

    @property
    def labels(self) -> NDArray[np.int64]:
        """The class of each context."""
        return np.arange(self.contexts) * self.classes // self.contexts

    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        v, z, x = parameters["v"], parameters["z"][:, :, None], data["x"]
        if self.attention_map == "softmax":
            b = (x.log() + z).softmax(-1)  # (R, query, context, token)
        else:
            b = x * z if self.attention_map == "linear" else x * z.exp()
        a = b @ v[:, None]  # (R, query, context, hidden)
        if self.residual:
            a = a + parameters["r"][:, :, None]
        h, slope = activate(self.activation, a)
        residual, loss = self._residual(h @ data["output"][:, None], data)
        g = residual @ data["output"][:, None].mT * slope / (self.queries * self.contexts)
        s = g @ v[:, None].mT  # (R, query, context, token)
        if self.attention_map == "linear":
            dz = x * s
        elif self.attention_map == "exp":
            dz = b * s
        else:
            s = s - s.gather(-1, b.argmax(-1, keepdim=True))
            dz = b * (s - (b * s).sum(-1, keepdim=True))
        moved = {"v": (b.mT @ g).sum(1), "z": dz.sum(2)}
        return moved | ({"r": g.sum(2)} if self.residual else {}), loss.mean((1, 2))

    def _residual(self, logits: Tensor, data: Tensors) -> tuple[Tensor, Tensor]:
        """The gradient of J by the logits (R, query, context, class), and the loss of each context."""
        import torch

        if self.objective == "squared":
            residual = data["target"] - logits
            return residual, (residual**2).sum(-1) / 2
        if self.objective == "cross_entropy":
            return softmax_residual(logits, data["label"])
        residual = torch.nn.functional.one_hot(data["label"], self.classes).to(logits.dtype) - 1 / self.classes
        return residual, -(residual * logits).sum(-1)


def activate(name: str, a: Tensor) -> tuple[Tensor, Tensor]:
    """phi(a) and its derivative."""
    import torch

    if name == "linear":
        return a, torch.ones_like(a)
    if name == "relu":
        return a.clamp(min=0), (a > 0).to(a.dtype)
    if name == "square":
        return a**2, 2 * a
    if name == "gelu":
        below = torch.special.ndtr(a)  # the normal distribution function
        return a * below, below + a * torch.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    small = torch.exp(-2 * a.abs())
    return torch.tanh(a), 4 * small / (1 + small) ** 2  # 1 - tanh^2 without its cancellation
