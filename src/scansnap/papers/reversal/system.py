"""The reversal curse: a model that learns "A is B" does not learn "B is A" (Zhu et al., NeurIPS 2024).

`Facts` lists sentences (given, relation, answer): some are trained, others only asked.  Two kinds of model learn them.

(a) Scan and Snap's (Y, Z), on the three-token sentences of `Facts.classes`: the given token is the context, the
relation is the query.  The context is one token, so attention is 1 and Z never moves.  Without a residual connection
p(.|given) = softmax(Y_given), and only sentences with that given token move its row.  The row of a token that is never
given stays where it starts: from zero, every answer to it has probability 1/M, exactly and forever.  With the residual
connection v = (e_given + e_relation) / sqrt(2), and the row of the relation, which all its sentences share, gets
the sum of their gradients: Y_relation = sum of Y_given over its sentences, at every step (`theory.py`).

(b) A bilinear model: weights of answers y given x are x'Theta y, with fixed embeddings of N(0, I/d).  With X the
embeddings of the n given tokens, E those of all V tokens, and r_s = e_answer - p(.|given) for sentence s,

    dTheta = X' R E / n,      so that from zero Theta = X' C E for some C, and the weights are (E X') C (E E').

E X' is the identity plus noise of size 1/sqrt(d): a token that is never given has small weights.  Gradients and
flows see the embeddings through E E' alone.  If d > V we therefore use coordinates of their span, in which E is
square and lower triangular: its entries are N(0, 1/d) below the diagonal and chi / sqrt(d), with d, d - 1, ... degrees
of freedom, on it (Bartlett's decomposition).  The width is then free of cost.  Adam depends on the coordinates.

A factored Theta = P Q' moves by dP = G Q, dQ = G' P with G as above.  P'P - Q'Q is constant along the flow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError
from scansnap.systems.quantity import quantity
from scansnap.systems.system import SYSTEMS, Arrays, Block, Preset, Seeds, State, System, Tensors, softmax_residual
from scansnap.validation.checks import FloatArray
from scansnap.validation.options import Options, option, options

if TYPE_CHECKING:
    from torch import Tensor

IntArray = NDArray[np.int64]

SHARE = 0.5**0.5
"""The entries of the direction LN(e_given + e_relation)."""


@options
class Facts(Options):
    """Sentences (given, relation, answer) about pairs A, B or chains A, B, C.

    >>> from scansnap.papers.reversal import Facts
    >>> facts = Facts(pairs=3, both=1)
    >>> [" ".join(facts.names[token] for token in sentence) for sentence in facts.asked]
    ['B1 ← A1', 'B2 ← A2']
    """

    pairs: int = option("Pairs (A, B), or chains (A, B, C).", default=60, least=2, most=10_000)
    both: int = option("Pairs trained in both directions, or chains whose A ⇝ C is trained.", default=30, least=0)
    task: Literal["reversal", "chain"] = option(
        "reversal: learn A → B, asked B ← A; chain: learn A → B and B → C, asked A ⇝ C.", default="reversal"
    )
    identity: Literal["none", "A", "B", "all"] = option(
        "Tokens X for which the sentence X = X is trained too.", default="none"
    )

    def check_together(self) -> None:
        if self.both >= self.pairs:
            raise InputError(f"both is {self.both} of {self.pairs} pairs: leave at least one pair that is only asked.")

    @cached_property
    def entities(self) -> tuple[str, ...]:
        """The names of the tokens that sentences are about: A0, A1, ..., B0, B1, ..."""
        letters = "AB" if self.task == "reversal" else "ABC"
        return tuple(f"{letter}{i}" for letter in letters for i in range(self.pairs))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all tokens: entities, then relations."""
        relations = ("→", "←") if self.task == "reversal" else ("→", "⇝")
        return (*self.entities, *relations, *(("=",) if self.identity != "none" else ()))

    @cached_property
    def trained(self) -> IntArray:
        """(n, 3) the sentences that are trained."""
        A, B, C = (np.arange(self.pairs) + i * self.pairs for i in range(3))
        right, asking, same = (len(self.entities) + i for i in range(3))
        if self.task == "reversal":
            parts = [_sentences(A, right, B), _sentences(B[: self.both], asking, A[: self.both])]
        else:
            parts = [
                _sentences(A, right, B),
                _sentences(B, right, C),
                _sentences(A[: self.both], asking, C[: self.both]),
            ]
        same_as_itself = {"none": A[:0], "A": A, "B": B, "all": np.arange(len(self.entities))}[self.identity]
        return np.concatenate([*parts, _sentences(same_as_itself, same, same_as_itself)])

    @cached_property
    def asked(self) -> IntArray:
        """(n', 3) the sentences that are asked and never trained."""
        first, last = np.arange(self.both, self.pairs), np.arange(self.both, self.pairs) + self.last_letter
        asking = len(self.entities) + 1
        return _sentences(last, asking, first) if self.task == "reversal" else _sentences(first, asking, last)

    @property
    def last_letter(self) -> int:
        """Where the tokens of the last letter begin."""
        return len(self.entities) - self.pairs

    @property
    def candidates(self) -> IntArray:
        """The tokens that could answer what is asked, by their letter."""
        return np.arange(self.pairs) + (0 if self.task == "reversal" else self.last_letter)

    @property
    def classes(self) -> SequenceClasses:
        """The sentences as classes of (Y, Z); the asked ones have weight 0, so they are evaluated and not trained."""
        given, relation, answer = np.concatenate([self.trained, self.asked]).T
        trained = len(self.trained)
        return SequenceClasses.from_supports(
            tokens=list(given[:, None]),
            probs=[[1.0]] * len(given),
            query=relation,
            next_token=answer,
            vocab_size=len(self.names),
            weights=np.repeat([1.0 / trained, 0.0], [trained, len(self.asked)]),
            token_names=self.names,
        )


def _sentences(given: IntArray, relation: int, answer: IntArray) -> IntArray:
    return np.stack([given, np.full(len(given), relation), answer], 1)


# --- quantities of (Y, Z) --------------------------------------------------------------------------------------------


@quantity("class", needs=("decoder",), long_name="probability of each class's next token", full_precision=True)
def answer_probability(now: Any) -> ArrayLike:
    """p(n|given) of classes with one contextual token, without a residual connection."""
    return np.exp(_log_probs(_given_rows(now))[:, np.arange(now.classes.num_classes), now.classes.next_token])


@quantity(
    "class",
    needs=("decoder", "query_decoder"),
    long_name="probability of each class's next token with the residual connection",
    full_precision=True,
)
def residual_answer_probability(now: Any) -> ArrayLike:
    """p(n|given, relation) of classes with one contextual token, with the residual connection and l2 normalization."""
    classes = now.classes
    order = np.argsort(classes.queries)
    query = order[np.searchsorted(classes.queries, classes.query, sorter=order)]
    logits = SHARE * (_given_rows(now) + now.query_decoder[:, 0, 0].astype(np.float64)[:, query])
    return np.exp(_log_probs(logits)[:, np.arange(classes.num_classes), classes.next_token])


def _given_rows(now: Any) -> FloatArray:
    """The row of Y (R, K, M) of each class's only contextual token."""
    classes = now.classes
    if len(classes.tokens) != classes.num_classes:
        raise InputError("a class has several contextual tokens: this quantity is for sentences of Facts.classes.")
    return now.decoder[:, 0, 0].astype(np.float64)[:, np.searchsorted(classes.contextual_tokens, classes.tokens)]


def _log_probs(logits: FloatArray) -> FloatArray:
    from scipy.special import log_softmax  # takes long to import

    return np.asarray(log_softmax(logits, -1))


# --- quantities of the bilinear model --------------------------------------------------------------------------------


def _weights(now: State) -> FloatArray:
    """x'Theta y for the given tokens x of what is asked and all tokens y (R, n', V)."""
    system, E = now.system, np.asarray(now.data["embedding"], np.float64)
    assert isinstance(system, Bilinear)
    theta = np.asarray(system.theta(now.parameters), np.float64)
    return np.asarray(E[:, system.asked[:, 0]] @ theta @ E.swapaxes(1, 2), np.float64)


@quantity("asked", long_name="weight of the answer to what is asked")
def asked_weight(now: State) -> ArrayLike:
    """x'Theta y of the asked sentences."""
    asked = now.system.asked  # type: ignore[attr-defined]
    return _weights(now)[:, np.arange(len(asked)), asked[:, 2]]


@quantity(long_name="loss of the asked sentences", units="nats", full_precision=True)
def asked_loss(now: State) -> ArrayLike:
    """The mean of -ln p(answer|given) over the asked sentences."""
    asked = now.system.asked  # type: ignore[attr-defined]
    return -_log_probs(_weights(now))[:, np.arange(len(asked)), asked[:, 2]].mean(-1)


@quantity(long_name="share of the asked sentences whose answer beats the other candidates")
def asked_accuracy(now: State) -> ArrayLike:
    """Correct: the answer has the largest weight among the tokens of its letter; ties count as wrong."""
    system, weights = now.system, _weights(now)
    assert isinstance(system, Bilinear)
    answer = weights[:, np.arange(len(system.asked)), system.asked[:, 2]]
    other = system.candidates != system.asked[:, 2:]  # (n', candidates)
    best = np.where(other, weights[..., system.candidates], -np.inf).max(-1)
    return (answer > best).mean(-1)


@quantity("input", "output", long_name="part of Theta outside the span of the given tokens")
def outside_span(now: State) -> ArrayLike:
    """Theta less its projection on the span of the embeddings that are given in training."""
    system, theta = now.system, np.asarray(now.parameters["theta"], np.float64)
    assert isinstance(system, Bilinear)
    given = np.asarray(now.data["embedding"], np.float64)[:, system.trained[:, 0]]
    return theta - np.linalg.pinv(given) @ (given @ theta)


@quantity("factor", "other_factor", long_name="P'P - Q'Q")
def balance(now: State) -> ArrayLike:
    """What the flow of a product of two factors conserves."""
    p, q = (np.asarray(now.parameters[name], np.float64) for name in ("p", "q"))
    return p.swapaxes(1, 2) @ p - q.swapaxes(1, 2) @ q


# --- the bilinear model ----------------------------------------------------------------------------------------------


@options
class Bilinear(Facts, System):
    """Weights x'Theta y of answers y given x, with fixed embeddings."""

    source = "Zhu et al., NeurIPS 2024"
    quantities = (asked_loss, asked_weight, asked_accuracy)

    width: int | None = option(
        "Length d of the embeddings, drawn from N(0, I/d).",
        default=256,
        least=1,
        most=10**15,
        none="makes them orthonormal, as for d → ∞",
    )

    @abstractmethod
    def theta(self, parameters: Mapping[str, Any]) -> Any:
        """Theta (R, D, D) of arrays or tensors."""

    @property
    def dimension(self) -> int:
        """D: the length of embeddings in coordinates of their span."""
        tokens = len(self.entities)
        return tokens if self.width is None else min(tokens, self.width)

    @property
    def coords(self) -> Mapping[str, Sequence[Any]]:
        return {
            "input": range(self.dimension),
            "output": range(self.dimension),
            "asked": range(self.both, self.pairs),
        }

    def data(self, seeds: Seeds, step: int | None) -> Arrays:
        return {"embedding": np.stack([self._embedding(int(seed)) for seed in seeds])}

    def _embedding(self, seed: int) -> FloatArray:
        """E (V, D): rows are embeddings, in coordinates of their span where the width exceeds V."""
        tokens = len(self.entities)
        if self.width is None:
            return np.eye(tokens)
        rng = np.random.default_rng([seed, 0])
        drawn = rng.normal(size=(tokens, self.dimension)) / self.width**0.5
        if self.width < tokens:
            return drawn
        diagonal = np.sqrt(rng.chisquare(self.width - np.arange(tokens)) / self.width)
        return np.asarray(np.tril(drawn, -1) + np.diag(diagonal))

    def _given(self, embedding: Tensor) -> Tensor:
        """X (R, n, D): the embeddings of given tokens."""
        return embedding[:, self.trained[:, 0]]

    def _residual(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """R / n (R, n, V) of the weights of all answers to trained sentences, and the loss."""
        import torch

        answer = torch.as_tensor(self.trained[:, 2], device=weights.device)
        residual, loss = softmax_residual(weights, answer.expand(len(weights), -1))
        return residual / len(answer), loss.mean(-1)


@SYSTEMS.register("reversal")
@dataclass(frozen=True, kw_only=True)
class Reversal(Bilinear):
    """The bilinear model with Theta itself trained, from zero."""

    title = "Reversal curse: a bilinear model that learns A → B is asked B ← A"
    invariants = (outside_span,)
    presets: ClassVar[Mapping[str, Preset]] = {
        "reversal": Preset(
            "A → B is learned for 60 pairs; asked B ← A for 30 of them, the model stays at chance (loss 4.79)",
            train={
                "lr_theta": 90.0,
                "steps": 400,
                "seeds": (0, 1, 2),
                "record": ("loss", "asked_loss", "asked_accuracy"),
            },
            flow={"lr_theta": 90.0, "times": (1, 10, 100, 1e3)},
        )
    }

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"theta": Block("lr_theta", ("input", "output"), "Theta")}

    def theta(self, parameters: Mapping[str, Any]) -> Any:
        return parameters["theta"]

    def start(self, seeds: Seeds) -> Arrays:
        return {"theta": np.zeros((len(seeds), self.dimension, self.dimension))}

    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        E, X = data["embedding"], self._given(data["embedding"])
        residual, loss = self._residual(X @ parameters["theta"] @ E.mT)
        return {"theta": X.mT @ (residual @ E)}, loss


@SYSTEMS.register("reversal-factored")
@options
class FactoredReversal(Bilinear):
    """The bilinear model with Theta = PQ', both factors trained from a small random start."""

    title = "Reversal curse with a factored matrix, where the identity bridge works"
    source = "Zhu et al., NeurIPS 2024; identity bridge: arXiv 2602.02470"
    invariants = (balance,)
    presets: ClassVar[Mapping[str, Preset]] = {
        "identity-bridge": Preset(
            "sentences A = A and B = B teach a factored model to answer B ← A, which it never sees",
            {"pairs": 8, "both": 0, "width": None, "identity": "all"},
            train={"lr_theta": 4.0, "steps": 400, "seeds": (0, 1, 2)},
            flow={"lr_theta": 1.0, "times": (10, 100, 316, 1e3, 1e4)},
        )
    }

    rank: int = option("Columns of P and Q.", default=16, least=1, most=10_000)
    scale: float = option("Standard deviation of the start of P and Q.", default=1e-3, least=0.0)

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {
            "p": Block("lr_theta", ("input", "factor"), "P, read by given tokens"),
            "q": Block("lr_theta", ("output", "factor"), "Q, read by answers"),
        }

    @property
    def coords(self) -> Mapping[str, Sequence[Any]]:
        return {**super().coords, "factor": range(self.rank), "other_factor": range(self.rank)}

    def theta(self, parameters: Mapping[str, Any]) -> Any:
        return parameters["p"] @ parameters["q"].swapaxes(-1, -2)

    def start(self, seeds: Seeds) -> Arrays:
        shape = (2, self.dimension, self.rank)
        drawn = np.stack([np.random.default_rng([int(seed), 1]).normal(size=shape) for seed in seeds]) * self.scale
        return {"p": drawn[:, 0], "q": drawn[:, 1]}

    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        E, X = data["embedding"], self._given(data["embedding"])
        left, right = X @ parameters["p"], E @ parameters["q"]  # narrow, so that products are cheap
        residual, loss = self._residual(left @ right.mT)
        return {"p": X.mT @ (residual @ right), "q": E.mT @ (residual.mT @ left)}, loss
