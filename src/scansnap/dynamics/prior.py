"""`attention_prior`: logits that are added to Z before any training, token by token.

Attention becomes the softmax of z + z_0 + ln a.  The gradient depends on z and z_0 only through their sum, so under
every update rule training with a prior is training without one from Z(0) + z_0: the paper's "initial value as prior",
which is how it is implemented here.  Results give Z without the prior, and attention with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.data.sequence_classes import SequenceClasses
from scansnap.runtime.errors import InputError, short_repr, unknown
from scansnap.validation import checks
from scansnap.validation.argument_types import ArgumentType

Prior = Mapping[str, float] | Mapping[int, float] | Sequence[float] | NDArray[np.floating]

KINDS = ("common", "distinct")

LARGEST = 1e6
"""Larger logits must be a mistake, and float32 would lose what training adds to them."""

WANTED = (
    "give one number for each token of the vocabulary, or a mapping from tokens or kinds of tokens to numbers, such as "
    f"{{'common': -2.0}}, none beyond ±{LARGEST:g}"
)


@dataclass(frozen=True)
class PriorType(ArgumentType):
    """Values of the option `attention_prior`."""

    def check(self, name: str, value: Any) -> dict[str, float] | tuple[float, ...]:
        if isinstance(value, Mapping):
            return {
                str(key): checks.number(f"{name} of {short_repr(key)}", logit, least=-LARGEST, most=LARGEST)
                for key, logit in value.items()
            }
        array = checks.series(name, value, WANTED.removeprefix("give "))
        if not (np.abs(array) <= LARGEST).all():
            raise InputError(f"{name} is {short_repr(value)}: {WANTED}.")
        return tuple(array.tolist())

    def read(self, name: str, text: str) -> dict[str, float]:
        try:
            return {key.strip(): float(logit) for key, logit in (part.rsplit("=", 1) for part in text.split(","))}
        except ValueError:
            raise InputError(
                f"{name} is '{text}': give tokens or kinds of tokens with their logits, as common=-2 or the=-1,cat=0.5."
            ) from None

    def plain(self, value: dict[str, float] | tuple[float, ...]) -> dict[str, float] | str:
        if isinstance(value, Mapping):
            return dict(value)
        return f"given {hashlib.sha256(np.array(value).tobytes()).hexdigest()[:16]}"


def prior_logits(
    classes: SequenceClasses, prior: Mapping[str, float] | tuple[float, ...] | None
) -> NDArray[np.float64]:
    """z_0 for the contextual tokens (S,), from one number per token of the vocabulary, or from a mapping.

    A mapping's keys are token ids, token names, or kinds of tokens ("common", "distinct"); tokens that are not named
    get 0, and a token's own number replaces that of its kind.
    """
    if prior is None:
        return np.zeros(len(classes.contextual_tokens))
    if isinstance(prior, Mapping):
        return _from_mapping(classes, prior)
    if len(prior) != classes.vocab_size:
        raise InputError(f"attention_prior has {len(prior)} numbers for {classes.vocab_size} tokens: {WANTED}.")
    return np.array(prior)[classes.contextual_tokens]


def _from_mapping(classes: SequenceClasses, prior: Mapping[str, float]) -> NDArray[np.float64]:
    tokens = classes.contextual_tokens
    logits = np.zeros(len(tokens))
    names = {name: token for token, name in enumerate(classes.token_names or ())}
    # Kinds first, so that single tokens override them.
    for key, logit in sorted(prior.items(), key=lambda item: item[0] not in KINDS):
        if key in KINDS:
            logits[classes.kinds_of(tokens) == key] = logit
            continue
        token = names.get(key, _id(key, classes.vocab_size))  # a name comes before an id
        if token is None:
            known = [*KINDS, *(classes.name(int(token)) for token in tokens[:6]), "..."]
            raise unknown("token in attention_prior", key, known)
        logits[tokens == token] = logit
    return logits


def _id(key: str, vocab_size: int) -> int | None:
    """The token whose id is written so, if there is one."""
    return int(key) if len(key) <= 9 and key.isdecimal() and key == str(int(key)) and int(key) < vocab_size else None
