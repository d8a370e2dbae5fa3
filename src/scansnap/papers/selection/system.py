"""Max-margin token selection and next-token prediction: attention trained alone.

`TokenSelection` is f(X) = v'X' softmax(XWp) of Tarzanagh, Li, Zhang and Oymak (NeurIPS 2023): labels y = ±1, logistic
loss, fixed v; p is trained, or W with a query z_i in place of p.  Only keys and scores gamma_it = y_i v'x_it matter:

    J = -1/n sum_i ln(1 + exp(-f_i)),      f_i = sum_t a_it gamma_it,      a_i = softmax(K_i W z_i)
    dJ/dW = 1/n sum_i sigma(-f_i) sum_t a_it (gamma_it - f_i) k_it z_i'

Late, f_i is within rounding of the selected score.  gamma_it - f_i keeps all digits if scores are counted from the
score of the token with the most attention, which then adds exactly nothing.

`NextToken` is one row z of Z in next-token prediction (Li et al., AISTATS 2024): p(y|X) = c_y e^{z_y}/sum_l c_l e^{z_l}
for a context with counts c that contains y.  With sample weights w_i,

    dJ/dz = sum_i w_i sum_l p_il (e_{y_i} - e_l).

Within a strongly connected component of the token-priority graph these forces come to balance, while the forces between
components fall like 1/t: beyond t = 1e16 they are below the rounding of the others.  The parameters are therefore
u = Q'z with `component_basis` Q.  Q is orthogonal, so gradient descent and flow are the same as those of z.  The mean
coordinates of e_y - e_l are exactly zero within a component, so the forces that balance do not enter them.

`theory.py` derives what both converge to.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.papers.selection.theory import component_basis, key_differences, max_margin, priority_components
from scansnap.runtime.errors import InputError
from scansnap.systems.quantity import quantity
from scansnap.systems.system import SYSTEMS, Arrays, Block, Preset, Seeds, State, System, Tensors, softmax_residual
from scansnap.validation.checks import FloatArray
from scansnap.validation.options import option, options

if TYPE_CHECKING:
    from torch import Tensor

Example = Literal["sphere", "one_hot", "plane", "clusters"]

PLANE_SCORES = (1.0, 0.9)
"""Scores of the first two tokens of the example "plane"."""


def features(data: Arrays) -> FloatArray:
    """The keys (R, n, T, P) whose products with the flat parameters are the logits."""
    products = np.einsum("rntd,rnq->rntdq", data["keys"], data["query"], dtype=np.float64)
    return products.reshape(*products.shape[:3], -1)


def flat(now: State) -> FloatArray:
    """The trained block (R, P)."""
    (block,) = now.parameters.values()
    return block.reshape(len(block), -1)


@quantity("input", "token", long_name="attention")
def attention(now: State) -> ArrayLike:
    """softmax(XWp) of every input."""
    from scipy.special import softmax  # takes long to import

    return softmax(np.einsum("rntp,rp->rnt", features(now.data), flat(now)), -1)


@quantity("input", long_name="whether the token with most attention has the best score")
def selects_best(now: State) -> ArrayLike:
    """1 if it has, 0 if not."""
    return (np.asarray(attention.compute(now)).argmax(-1) == now.data["scores"].argmax(-1)).astype(np.float64)


@quantity(long_name="cosine with the max-margin direction of the selected tokens")
def cosine(now: State) -> ArrayLike:
    """NaN where the selected tokens cannot be separated from the others, and at zero."""
    keys, theta = features(now.data), flat(now)
    selected = np.asarray(attention.compute(now)).argmax(-1)
    directions = np.stack([_direction(k.tobytes(), k.shape, s.tobytes()) for k, s in zip(keys, selected, strict=True)])
    with np.errstate(invalid="ignore"):
        return (directions * theta).sum(-1) / np.linalg.norm(theta, axis=-1)


@lru_cache(maxsize=4096)
def _direction(keys: bytes, shape: tuple[int, ...], selected: bytes) -> FloatArray:
    """The unit vector along the ATT-SVM; cached, because a run selects few sets of tokens."""
    rows = np.frombuffer(keys).reshape(shape)
    solution = max_margin(key_differences(rows, np.frombuffer(selected, np.int64)))
    return np.full(shape[-1], np.nan) if solution is None else solution.direction / np.linalg.norm(solution.direction)


@quantity(long_name="norm of the parameters orthogonal to all differences of keys")
def unmoved(now: State) -> ArrayLike:
    """Every update is a sum of differences k_it - k_is, so what is orthogonal to them stays."""
    keys = features(now.data)
    spans = (keys - keys[:, :, :1]).reshape(len(keys), -1, keys.shape[-1])
    rests = []
    for span, theta in zip(spans, flat(now), strict=True):
        _, sizes, rows = np.linalg.svd(span, full_matrices=False)
        moved = rows[sizes > 1e-10 * sizes.max()]
        rests.append(np.linalg.norm(theta - (moved @ theta) @ moved))
    return np.array(rests)


@SYSTEMS.register("selection")
@options
class TokenSelection(System):
    """Attention that selects tokens: f(X) = v'X' softmax(XWp) with logistic loss, p or W trained.

    The examples are those of the authors' repositories.  "sphere": `inputs` of `tokens` unit vectors with random
    queries, labels and v; the seeds are theirs.  "one_hot": one input with orthonormal keys and normal scores.
    "plane": one input with keys (-lean, 1), (1, 0), (0, 0) and scores 1, 0.9, `third`.  "clusters": three inputs of
    seven tokens in the plane.

    >>> from scansnap.papers.selection import TokenSelection
    >>> runs = ss.train(TokenSelection(), lr=0.1, steps=300, optimizer="normalized_sgd", seeds=range(5))
    >>> bool((runs["cosine"].values[:, -1] > 0.9).all())
    True
    """

    title: ClassVar[str] = "Max-margin token selection: attention trained alone"
    source: ClassVar[str] = "Tarzanagh, Li, Zhang and Oymak, NeurIPS 2023"
    quantities: ClassVar[Any] = (attention, selects_best, cosine)
    invariants: ClassVar[Any] = (unmoved,)
    presets: ClassVar[Mapping[str, Preset]] = {
        "selection": Preset(
            "six inputs of eight random tokens: which token of each input attention selects",
            train={"lr": 0.1, "steps": 2000, "optimizer": "normalized_sgd", "record_every": 20, "dtype": "float64"},
            flow={"lr": 1.0, "times": [10.0**k for k in range(1, 61)]},
        ),
        "overshoot": Preset(
            "one input in the plane: the direction overshoots its limit and returns",
            {"example": "plane", "trained": "p", "start_y": 1.0},
            train={"lr": 0.1, "steps": 1000, "optimizer": "normalized_sgd", "record_every": 10, "dtype": "float64"},
            flow={"lr": 1.0, "times": [10.0**k for k in range(1, 61)]},
        ),
    }

    example: Example = option("The data, by name.", default="sphere", axis=False)
    trained: Literal["p", "W"] = option("What is trained.", default="W", axis=False)
    inputs: int = option('Inputs of "sphere".', default=6, least=1, most=1000)
    tokens: int = option('Tokens of each input of "sphere" and "one_hot".', default=8, least=2, most=1000)
    width: int = option('Length of the vectors of "sphere".', default=10, least=1, most=1000)
    lean: float = option('How far the best key of "plane" leans.', default=0.1, least=0.0, most=10.0)
    third: float = option('Score of the third token of "plane".', default=0.9)
    init_scale: float = option("Parameters start uniformly between minus and plus this number.", default=0.3, least=0.0)
    start_y: float = option('Second coordinate of p at the start of "plane".', default=0.0)

    def check_together(self) -> None:
        if self.example != "sphere" and self.trained == "W":
            raise InputError(f"example '{self.example}' has no queries: give trained='p'.")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Inputs, tokens and length of the keys."""
        return {
            "sphere": (self.inputs, self.tokens, self.width),
            "one_hot": (1, self.tokens, self.tokens),
            "plane": (1, 3, 2),
            "clusters": (3, 7, 2),
        }[self.example]

    @property
    def blocks(self) -> dict[str, Block]:
        dims = ("feature", "query_feature") if self.trained == "W" else ("feature",)
        return {self.trained: Block("lr", dims)}

    @property
    def coords(self) -> dict[str, range]:
        inputs, tokens, width = self.shape
        return {"input": range(inputs), "token": range(tokens), "feature": range(width), "query_feature": range(width)}

    def start(self, seeds: Seeds) -> Arrays:
        width = self.shape[-1]
        shape = (width, width) if self.trained == "W" else (width,)
        drawn = np.stack([np.random.default_rng([int(seed), 1]).uniform(-1.0, 1.0, shape) for seed in seeds])
        if self.example == "plane":
            drawn[:] = (0.0, self.start_y)
            return {self.trained: drawn}
        return {self.trained: drawn * self.init_scale}

    def data(self, seeds: Seeds, step: int | None) -> Arrays:
        drawn = [self._draw(int(seed)) for seed in seeds]
        keys, query, scores = (np.stack(parts) for parts in zip(*drawn, strict=True))
        return {"keys": keys, "query": query, "scores": scores}

    def _draw(self, seed: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Keys (n, T, d), queries (n, q) and scores (n, T) of one run; q is 1 if p is trained."""
        inputs, tokens, width = self.shape
        one = np.ones((inputs, 1))
        if self.example == "one_hot":
            return np.eye(tokens)[None], one, np.random.default_rng([seed, 0]).normal(size=(1, tokens))
        if self.example == "plane":
            keys = np.array([[[-self.lean, 1.0], [1.0, 0.0], [0.0, 0.0]]])
            return keys, one, np.array([[*PLANE_SCORES, self.third]])
        if self.example == "clusters":
            keys, scores = _clusters(seed)
            return keys, one, scores
        keys, query, scores = _sphere(seed, inputs, tokens, width)
        return keys, query if self.trained == "W" else one, scores

    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        import torch

        keys, query, scores = data["keys"], data["query"], data["scores"]
        block = parameters[self.trained]
        weights = torch.softmax(torch.einsum("rntd,rdq,rnq->rnt", keys, block.reshape(*block.shape[:2], -1), query), -1)
        behind = scores - scores.gather(-1, weights.argmax(-1, keepdim=True))
        ahead = behind - (weights * behind).sum(-1, keepdim=True)  # gamma - f
        outputs = (weights * scores).sum(-1)
        pull = weights * ahead * (torch.sigmoid(-outputs) / outputs.shape[-1])[..., None]
        slope = torch.einsum("rnt,rntd,rnq->rdq", pull, keys, query)
        loss = torch.nn.functional.softplus(-outputs).mean(-1)
        return {self.trained: slope.reshape(block.shape)}, loss


def _sphere(seed: int, inputs: int, tokens: int, width: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Random unit vectors; drawn by torch in the authors' order, so that their 100 data sets are seeds 0 to 99."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    value = torch.randn(width, generator=generator)
    labels = 2.0 * (torch.randn(inputs, generator=generator) > 0) - 1
    keys = torch.nn.functional.normalize(torch.randn(inputs, tokens, width, generator=generator), dim=-1)
    query = torch.nn.functional.normalize(torch.randn(inputs, width, generator=generator), dim=-1)
    scores = (keys.double() @ (value / value.norm()).double()) * labels.double()[:, None]
    return keys.double().numpy(), query.double().numpy(), scores.numpy()


def _clusters(seed: int) -> tuple[FloatArray, FloatArray]:
    """Keys (3, 7, 2) and scores of the authors' several inputs: best tokens near (1, 0), the others in two groups."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    centers = torch.tensor([(1.0, 0.0)] + [(-1.0, 1.0)] * 3 + [(-0.5, -0.5)] * 3)
    keys = torch.randn(3, 7, 3, generator=generator)[..., :2] * 0.2 + centers
    return keys.double().numpy(), np.broadcast_to([1.0] + [0.5] * 6, (3, 7)).copy()


@quantity("token", long_name="attention logits")
def z(now: State) -> ArrayLike:
    """The row of Z, in the order of the tokens."""
    return np.einsum("rmk,rk->rm", now.data["basis"], now.parameters["u"])


@quantity("token", long_name="strongly connected component of the token")
def component(now: State) -> ArrayLike:
    """The component's number in the token-priority graph."""
    return now.data["component"]


@quantity(long_name="sum of the logits")
def total(now: State) -> ArrayLike:
    """Every force moves two tokens by opposite amounts."""
    return np.asarray(z.compute(now)).sum(-1)


@SYSTEMS.register("next_token")
@options
class NextToken(System):
    """Next-token prediction with one row of Z: the next token is in the context, and attention is the prediction.

    "random": contexts of `length` tokens, each with a next token drawn from it.  "chain": components of two or three
    tokens in an order of priority; a context holds a component and all later ones, and random frequencies say how often
    each token of that component is next.

    >>> from scansnap.papers.selection import NextToken
    >>> run = ss.flow(NextToken(example="chain", tokens=5), lr_z=1.0, times=[1e3, 1e6])
    >>> dict(run["z"].sizes)
    {'run': 1, 'time': 2, 'token': 5}
    """

    title: ClassVar[str] = "Next-token prediction with attention alone"
    source: ClassVar[str] = "Li, Huang, Ildiz, Rawat and Oymak, AISTATS 2024"
    quantities: ClassVar[Any] = (z, component)
    invariants: ClassVar[Any] = (total,)
    presets: ClassVar[Mapping[str, Preset]] = {
        "next-token": Preset(
            "logits settle within components of the token-priority graph and part between them",
            {"example": "chain"},
            train={"lr_z": 1.0, "steps": 1000},
            flow={"lr_z": 1.0, "times": [10.0**k for k in range(61)]},
        ),
    }

    example: Literal["random", "chain"] = option("The data, by name.", default="random", axis=False)
    tokens: int = option("Tokens.", default=8, least=2, most=200)
    contexts: int = option('Contexts of "random".', default=8, least=1, most=1000)
    length: int = option('Tokens of each context of "random".', default=4, least=1, most=1000)

    @property
    def blocks(self) -> dict[str, Block]:
        return {"u": Block("lr_z", ("coordinate",), "logits in the basis of components")}

    @property
    def coords(self) -> dict[str, range]:
        return {"token": range(self.tokens), "coordinate": range(self.tokens)}

    def start(self, seeds: Seeds) -> Arrays:
        return {"u": np.zeros((len(seeds), self.tokens))}

    def data(self, seeds: Seeds, step: int | None) -> Arrays:
        runs = [self._draw(np.random.default_rng(int(seed))) for seed in seeds]
        counts, target, weight = (np.stack(parts) for parts in zip(*runs, strict=True))
        component = np.stack([priority_components(c, y) for c, y in zip(counts, target, strict=True)])
        basis = np.stack([component_basis(labels) for labels in component])
        own = np.take_along_axis(basis, target[..., None], 1)
        force = own[:, :, None] - basis[:, None]  # e_y - e_l of every sample, in the basis (R, n, M, M)
        return {
            "counts": counts,
            "target": target,
            "weight": weight,
            "component": component,
            "basis": basis,
            "force": force,
        }

    def _draw(self, rng: np.random.Generator) -> tuple[FloatArray, NDArray[np.int64], FloatArray]:
        """Counts (n, M), next tokens (n,) and weights (n,) of one run."""
        if self.example == "chain":
            order = np.repeat(np.arange(self.tokens), rng.integers(2, 4, self.tokens))[: self.tokens]
            counts = (order >= order[:, None]).astype(np.float64) * rng.integers(1, 4, self.tokens)
            return counts, np.arange(self.tokens), rng.dirichlet(np.ones(self.tokens))
        drawn = rng.integers(0, self.tokens, (self.contexts, self.length))
        counts = (drawn[..., None] == np.arange(self.tokens)).sum(1).astype(np.float64)
        return counts, drawn[:, 0], np.full(self.contexts, 1 / self.contexts)

    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        import torch

        row = torch.einsum("rmk,rk->rm", data["basis"], parameters["u"])
        residual, loss = softmax_residual(row[:, None] + torch.log(data["counts"]), data["target"])
        slope = -torch.einsum(
            "rn,rnm,rnmk->rk", data["weight"], residual, data["force"]
        )  # the force on y itself is zero
        return {"u": slope}, (data["weight"] * loss).sum(-1)
