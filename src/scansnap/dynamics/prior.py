"""`attention_prior`: logits that are added to Z before any training, token by token.

Attention becomes the softmax of z + z_0 + ln a.  The gradient sees z and z_0 through their sum alone, so under every
update rule training with a prior is training without one from Z(0) + z_0: the paper's "initial value as prior", and the
way in which it is done here.  Results give Z without the prior, and attention with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap.base.errors import InputError, unknown
from scansnap.data.sequence_classes import SequenceClasses

KINDS = ("common", "distinct")


LARGEST = 1e6
"""Logits beyond it are no prior but a mistake, and float32 would not hold what training adds to them."""


def prior_logits(classes: SequenceClasses, prior: Any) -> NDArray[np.float64]:
    """z_0 for the contextual tokens (S,), from one number per token of the vocabulary, or from a mapping.

    A mapping's keys are token ids, token names, or kinds of tokens ("common", "distinct"); tokens that are not named
    get 0, and a token that is named by itself does not get its kind's.
    """
    if prior is None:
        return np.zeros(len(classes.contextual_tokens))
    if isinstance(prior, Mapping):
        return _from_mapping(classes, prior)[classes.contextual_tokens]
    try:
        array = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != (classes.vocab_size,) or not (np.abs(array) <= LARGEST).all():
        raise InputError(
            f"attention_prior cannot be read: give one number for each of the {classes.vocab_size} tokens, or a "
            f"mapping from tokens or kinds of tokens to numbers, such as {{'common': -2.0}}, none beyond ±{LARGEST:g}."
        )
    return array[classes.contextual_tokens]


def described_prior(prior: Any) -> Any:
    """What tells priors apart, as plain data."""
    if prior is None or isinstance(prior, str):
        return prior
    if isinstance(prior, Mapping):
        return {str(key): float(value) for key, value in prior.items()}
    return f"given {hashlib.sha256(np.asarray(prior, np.float64).tobytes()).hexdigest()[:16]}"


def _from_mapping(classes: SequenceClasses, prior: Mapping[Any, Any]) -> NDArray[np.float64]:
    found = np.zeros(classes.vocab_size)
    names: dict[Any, int] = {str(token): token for token in range(classes.vocab_size)}
    names |= {classes.name(token): token for token in range(classes.vocab_size)}  # a name comes before an id
    # Kinds first, so that single tokens have the last word.
    for key, value in sorted(prior.items(), key=lambda item: item[0] not in KINDS):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
            raise InputError(
                f"attention_prior of {key!r} is {value!r}: give a number from {-LARGEST:g} to {LARGEST:g}."
            )
        if key in KINDS:
            found[classes.token_kinds == key] = value
        elif str(key) in names:
            found[names[str(key)]] = value
        else:
            known = [*KINDS, *(classes.name(int(token)) for token in classes.contextual_tokens[:6]), "..."]
            raise unknown("token in attention_prior", key, known)
    return found
