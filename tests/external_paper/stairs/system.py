"""Heads of linear attention on the population loss of `theory.py`, with U merged (free) or separate (U = k q').

With G = -dloss/dW:  dv = tr(G'U), dU = v G (merged);  dv = k'G q, dk = v G q, dq = v G'k (separate).  So v² - |U|²,
or v² - |k|² and v² - |q|², of every head stay along the flow.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

import scansnap as ss
from stairs.theory import moment


@ss.quantity("mode", long_name="share of each mode that is learned")
def learned(now: ss.State) -> np.ndarray:
    ratio = np.linalg.solve(now.data["covariance"], moment(now.data["covariance"], now.system.pairs))  # diag(a/λ)
    return np.diagonal(ratio @ now.system.weights(now.parameters), axis1=1, axis2=2)


@ss.quantity("head", long_name="v² less the square of the head's other weights")
def balance(now: ss.State) -> np.ndarray:
    other = now.parameters["k" if now.system.keys == "separate" else "U"]
    return now.parameters["v"] ** 2 - (other**2).reshape(*other.shape[:2], -1).sum(-1)


@ss.SYSTEMS.register("linear-attention")
@dataclass(frozen=True, kw_only=True)
class LinearAttention(ss.System):
    """Heads of linear attention."""

    title = "Linear attention learns regression in context, in stairs or in one fall"
    source = "Zhang, Singh, Latham and Saxe, ICML 2025"
    quantities = (learned,)
    invariants = (balance,)
    presets: ClassVar = {
        "stairs": ss.Preset("one mode is learned after the other", train={"lr": 0.2, "steps": 6000}),
        "one-fall": ss.Preset("all modes are learned at once", {"keys": "merged"}, {"lr": 0.1, "steps": 300}),
    }

    keys: Literal["separate", "merged"] = "separate"
    modes: int = 4
    heads: int = 8
    pairs: int = 32
    init: float = 0.01

    @property
    def blocks(self):
        names = {"k": ("mode",), "q": ("mode",)} if self.keys == "separate" else {"U": ("mode", "query_mode")}
        return {name: ss.Block("lr", ("head", *dims)) for name, dims in {"v": (), **names}.items()}

    @property
    def coords(self):
        return {"head": range(self.heads), "mode": range(self.modes), "query_mode": range(self.modes)}

    def start(self, seeds):
        draws = [np.random.default_rng(seed) for seed in seeds]
        shapes = {name: [len(self.coords[dim]) for dim in block.dims] for name, block in self.blocks.items()}
        return {name: self.init * np.stack([d.normal(size=shape) for d in draws]) for name, shape in shapes.items()}

    def data(self, seeds, step):
        return {"covariance": np.tile(np.diag(0.5 ** np.arange(self.modes)), (len(seeds), 1, 1))}

    def products(self, parameters):  # U (run, head, mode, query_mode)
        return parameters["U"] if "U" in parameters else parameters["k"][..., None] * parameters["q"][..., None, :]

    def weights(self, parameters):  # W (run, mode, query_mode)
        return (parameters["v"][..., None, None] * self.products(parameters)).sum(1)

    def gradient(self, parameters, data):
        covariance, v, W = data["covariance"], parameters["v"], self.weights(parameters)
        G = covariance @ covariance - moment(covariance, self.pairs) @ W @ covariance
        loss = (covariance - W * (G + covariance @ covariance)).sum((-2, -1)) / 2
        G = G[:, None]  # for every head
        moved = {"v": (G * self.products(parameters)).sum((-2, -1))}
        if self.keys == "merged":
            return moved | {"U": v[..., None, None] * G}, loss
        k, q = parameters["k"][..., None], parameters["q"][..., None]
        return moved | {"k": v[..., None] * (G @ q)[..., 0], "q": v[..., None] * (G.mT @ k)[..., 0]}, loss
