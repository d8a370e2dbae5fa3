"""What the looks say of each head, in words.

A verdict is a function of one head's history that gives its evidence, or None where the verdict does not hold.  The
built-in ones are made the way a user makes their own:

    @HEAD_VERDICTS.register("wandering")
    @head_verdict("notice", needs="moved")
    def wandering(head):
        return head.as_long_as(head["moved"] > 0.5, f"{head.now('moved'):.0%} of its attention moved since a look ago")

Which weight on a key is much depends on the number of keys: a head that attends evenly to n keys has 1/n on the first
token, on the previous one and on the largest.  Let e be the mean of 1/n over the rows that were looked at
(`even_weight`).  A weight w is therefore read as the share of what could lie there beyond an even share,

    s = (w - e)/(1 - e),                                                                    (`beyond_even`)

which is 0 for an even head and 1 if all weight lies there, whatever the length of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, get_args

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from scansnap.monitor.dataset import FINITE, HEADS, of_heads, split_looks
from scansnap.results.snap import find_snap
from scansnap.runtime.errors import InputError, brief, short_repr, unknown
from scansnap.validation.registry import Registry
from scansnap.validation.validate import validated

Severity = Literal["alarm", "notice", "pattern"]
"""What a verdict asks for, most pressing first: look now, look when you can, or nothing: it says what the head does."""

MOST = 0.5
"""A head is named for a key if half of what could lie there beyond an even share does: it attends to that key more than
to all others together."""

ONE_KEY = 0.95
"""Attention has collapsed if this share of it, beyond an even share, lies on one key.  The gradient reaches a row's
logits through diag(p) - pp', whose trace 1 - sum p^2 is at most 1 - top_1^2 <= 2 (1 - top_1): at 0.95 no more than a
tenth of what an even row lets through.  The head hardly learns where to look any more."""

EVEN = 0.02
"""Attention is uniform if its entropy is within so many nats of the largest.  That distance is the divergence
KL(p || even), so by Pinsker's inequality at most sqrt(0.02/2) = a tenth of the attention would have to move."""

FEW_KEYS = 0.5
"""Attention is sparse if its entropy is at most half of the largest: exp(H) <= sqrt(n), as if spread evenly over the
square root of the keys it may see."""

ROUNDED = 256.0
"""Logits have exploded if bfloat16, whose numbers have 8 bits, rounds them by up to 256 * 2^-8 = 1: a weight is then
wrong by up to a factor of e."""

RISING = 32.0
"""Growth is followed from here, where rounding is wrong by an eighth; below, logits grow fast in any early training."""

RECENT = 0.2
"""Growth is judged over the last fifth of the steps, the share that `results/snap.py` asks of a frozen pattern."""


@dataclass(frozen=True)
class HeadHistory:
    """What the looks say of one head; looks that are missing are left out.

    >>> history = ss.HeadHistory(0, 0, "attention", np.array([0, 50]), {"top_1": np.array([0.1, 0.9])})
    >>> history["top_1"]
    array([0.1, 0.9])
    """

    layer: int
    head: int
    module: str
    steps: NDArray[np.int64]
    values: Mapping[str, NDArray[np.float64]]

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return self.values[name]

    def now(self, name: str) -> float:
        """A quantity at the last look."""
        return float(self.values[name][-1])

    def as_long_as(self, holds: NDArray[np.bool_], evidence: str) -> Finding | None:
        """The evidence for what holds at the last look, with the step since which it has; None if it does not."""
        if not holds[-1]:
            return None
        broken = np.flatnonzero(~holds)
        return Finding(int(self.steps[broken[-1] + 1 if len(broken) else 0]), evidence)


@dataclass(frozen=True)
class Finding:
    """That a verdict holds: since which step, and why."""

    since: int
    evidence: str


@dataclass(frozen=True)
class VerdictType:
    """A kind of verdict: `judge` gives a finding if it holds of a head whose history has all that it `needs`."""

    judge: Callable[[HeadHistory], Finding | None]
    severity: Severity
    needs: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "__wrapped__", self.judge)  # where Python looks for the function it is made of
        if self.severity not in get_args(Severity):
            raise unknown("severity", self.severity, get_args(Severity))


HEAD_VERDICTS: Registry[VerdictType] = Registry("verdict", "judge")
"""Verdicts on heads by name.

>>> "sink" in ss.HEAD_VERDICTS
True
"""


@validated
def head_verdict(
    severity: Severity, *, needs: str | Sequence[str]
) -> Callable[[Callable[[HeadHistory], Finding | None]], VerdictType]:
    """A decorator that turns a function of a `HeadHistory` into a kind of verdict.

    >>> @ss.head_verdict("notice", needs="top_1")
    ... def peaked(history: ss.HeadHistory):
    ...     return None
    >>> peaked.severity
    'notice'
    """
    names = (needs,) if isinstance(needs, str) else tuple(needs)
    return lambda judge: VerdictType(judge, severity, names)


@dataclass(frozen=True)
class HeadVerdict:
    """A verdict on one head.

    >>> print(ss.HeadVerdict("sink", "notice", 0, 1, "attention", 50, "the first token has 90%"))
    notice: layer 0, head 1 (attention) is sink since step 50: the first token has 90%
    """

    name: str
    severity: Severity
    layer: int
    head: int
    module: str
    since: int
    evidence: str

    def __str__(self) -> str:
        where = f"layer {self.layer}, head {self.head}" + (f" ({self.module})" if self.module else "")
        return f"{self.severity}: {where} is {self.name} since step {self.since:,}: {self.evidence}"


@validated
def judge_heads(dataset: xr.Dataset, kinds: Iterable[str] | None = None) -> list[HeadVerdict]:
    """Every verdict that holds at the last look, most pressing first.

    `dataset` has the looks of a watch, those so far or all of them; `kinds` selects verdicts by name.  A verdict that
    needs a quantity that cannot be measured on a head is not given; one that needs a quantity that was not recorded is
    refused if it is named, and otherwise not given.

    >>> import torch
    >>> model = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    >>> watch = ss.watch(model, probe=torch.randn(2, 12, 16), every=1)
    >>> watch.step()
    >>> ss.judge_heads(watch.dataset)
    []
    """
    if not set(HEADS) <= set(dataset.dims):
        raise InputError(f"the dataset has the dimensions {', '.join(map(str, dataset.dims))}: give looks of a watch.")
    names = tuple(HEAD_VERDICTS if kinds is None else kinds)
    rules = {name: HEAD_VERDICTS.member(name) for name in names}
    unjudged = {} if kinds is None else unjudged_verdicts(dataset)
    for name in set(names) & set(unjudged):
        raise InputError(f"the verdict '{name}' needs {', '.join(unjudged[name])}: record them too.")
    verdicts = [
        HeadVerdict(name, rules[name].severity, head.layer, head.head, head.module, finding.since, finding.evidence)
        for name, head, finding in _judged(dataset, rules)
        if finding is not None
    ]
    severities = list(get_args(Severity))
    return sorted(verdicts, key=lambda v: (severities.index(v.severity), names.index(v.name), v.layer, v.head))


@dataclass(frozen=True)
class LayerVerdict:
    """A verdict on some heads of one layer."""

    heads: tuple[HeadVerdict, ...]
    of: int  # heads that the layer has

    @property
    def size(self) -> int:
        """The number of heads."""
        return len(self.heads)

    @property
    def where(self) -> str:
        """Which heads."""
        layer, count = f"layer {self.heads[0].layer}", self.size
        if count == 1:
            return f"{layer}, head {self.heads[0].head}"
        if count == self.of:
            return f"{layer}, all {count} heads"
        return (
            f"{layer}, heads {', '.join(str(v.head) for v in self.heads)}" if count < 4 else f"{layer}, {count} heads"
        )

    @property
    def since(self) -> int:
        """The step since which it holds of the first of them."""
        return min(verdict.since for verdict in self.heads)


def by_kind(dataset: xr.Dataset) -> dict[str, list[LayerVerdict]]:
    """The verdicts by name, most pressing first, those of one layer together."""
    kinds: dict[str, list[LayerVerdict]] = {}
    sizes = _heads_of_layers(dataset)
    for (name, layer), heads in groupby(judge_heads(dataset), lambda verdict: (verdict.name, verdict.layer)):
        kinds.setdefault(name, []).append(LayerVerdict(tuple(heads), sizes[layer]))
    return kinds


def _heads_of_layers(dataset: xr.Dataset) -> dict[int, int]:
    """How many heads each layer has: a layer with fewer than others has no numbers for the rest, at any look."""
    has_numbers = [np.isfinite(values.values).any(0) for values in of_heads(dataset).values()]
    return dict(zip(dataset["layer"].values.tolist(), np.any(has_numbers, 0).sum(1).tolist(), strict=True))


def in_words(kinds: Mapping[str, Sequence[LayerVerdict]]) -> str:
    """How many heads each verdict holds of."""
    counts = {name: sum(layer.size for layer in layers) for name, layers in kinds.items()}
    return "; ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def count_verdicts(dataset: xr.Dataset) -> dict[str, int]:
    """Of how many heads each verdict holds, for the verdicts that can be judged at the last look."""
    counts: dict[str, int] = {}
    for name, _, finding in _judged(dataset, {name: HEAD_VERDICTS.member(name) for name in HEAD_VERDICTS}):
        counts[name] = counts.get(name, 0) + (finding is not None)
    return counts


def unjudged_verdicts(dataset: xr.Dataset) -> dict[str, list[str]]:
    """The verdicts that the looks say nothing of, and the quantities that were not recorded for them."""
    needs = {name: [q for q in HEAD_VERDICTS.member(name).needs if q not in dataset] for name in HEAD_VERDICTS}
    return {name: quantities for name, quantities in needs.items() if quantities}


def _judged(dataset: xr.Dataset, rules: Mapping[str, VerdictType]) -> Iterator[tuple[str, HeadHistory, Finding | None]]:
    """What each rule says of each head that it can be asked of."""
    for history in _histories(dataset):
        for name, rule in rules.items():
            if not set(rule.needs) <= set(history.values):
                continue
            try:
                finding = rule.judge(history)
            except Exception as error:
                raise InputError(
                    f"the verdict '{name}' fails on layer {history.layer}, head {history.head} "
                    f"({type(error).__name__}: {brief(error)}): mend its function."
                ) from error
            if not isinstance(finding, Finding | None):
                raise InputError(
                    f"the verdict '{name}' gives {short_repr(finding)}: return what head.as_long_as(...) "
                    "gives, or None."
                )
            yield name, history, finding


def _histories(dataset: xr.Dataset) -> Iterator[HeadHistory]:
    """The history of each head, with the quantities that could be measured at the last look."""
    looks, _ = split_looks(dataset)
    if not looks.sizes["step"]:
        return
    values = {name: quantity.values for name, quantity in of_heads(looks).items()}
    for i, layer in enumerate(looks["layer"].values.tolist()):
        module = str(looks["module"].values[i]) if "module" in looks.coords else ""
        for j, head in enumerate(looks["head"].values.tolist()):
            measured = {name: v[:, i, j] for name, v in values.items() if np.isfinite(v[-1, i, j])}
            if measured:
                yield HeadHistory(layer, head, module, looks["step"].values, measured)


def beyond_even(weight: NDArray[np.float64], even: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of what could lie on a key beyond an even share that does; NaN where there is one key only."""
    return np.divide(weight - even, 1 - even, out=np.full_like(weight, np.nan), where=even < 1)


def _named(head: HeadHistory) -> bool:
    """Whether the key that most of the attention lies on has a name of its own."""
    names = ("sink", "previous-token", "induction-like")
    rules = [HEAD_VERDICTS.member(name) for name in names]
    return any(set(rule.needs) <= set(head.values) and rule.judge(head) is not None for rule in rules)


@HEAD_VERDICTS.register("not-finite")
@head_verdict("alarm", needs=FINITE)
def not_finite(head: HeadHistory) -> Finding | None:
    """Logits that are NaN or infinite, in the layer that was the first to have such."""
    return head.as_long_as(head[FINITE] == 0, "its logits are NaN or infinite: nothing can be measured here")


@HEAD_VERDICTS.register("exploding-logits")
@head_verdict("alarm", needs="largest_logit")
def exploding_logits(head: HeadHistory) -> Finding | None:
    """Logits beyond `ROUNDED`, or above `RISING` and on the way there.

    Growth is exponential where the loss rewards ever larger logits, so the line through the logarithms of the last
    fifth of the steps (at least four looks) is drawn on: they are on the way if each look is above the one before and
    the line reaches `ROUNDED` before the run is twice as long.
    """
    logits, now = head["largest_logit"], head.now("largest_logit")
    below = np.flatnonzero(~(logits >= ROUNDED))
    since = first = int(below[-1]) + 1 if len(below) else 0  # from here on they are beyond
    while since > 0 and _growth(head.steps[:since], logits[:since]) is not None:
        since -= 1
    if since == len(logits):
        return None
    growth = _growth(head.steps, logits) if first == len(logits) else None
    if growth is None:
        evidence = f"from {ROUNDED:.0f} on, bfloat16 rounds weights by a factor of up to e"
        return Finding(int(head.steps[since]), f"its largest logit is {now:,.0f}; {evidence}")
    begin, left = growth
    return Finding(
        int(head.steps[since]),
        f"its largest logit is {now:.0f}, {now / logits[begin]:.1f} times what it was at step {head.steps[begin]:,}; "
        f"at this rate it reaches {ROUNDED:.0f} in {left:,} step{'' if left == 1 else 's'}",
    )


def _growth(steps: NDArray[np.int64], logits: NDArray[np.float64]) -> tuple[int, int] | None:
    """From which look on logits have grown, and the steps that are left until `ROUNDED`; None if that is far."""
    begin = min(int(np.searchsorted(steps, steps[-1] - RECENT * np.ptp(steps))), len(logits) - 4)
    if not RISING <= logits[-1] < ROUNDED or begin < 0 or logits[begin] <= 0 or not (np.diff(logits[begin:]) > 0).all():
        return None
    rate = float(np.polyfit(steps[begin:], np.log(logits[begin:]), 1)[0])
    left = np.log(ROUNDED / logits[-1]) / rate
    return (begin, max(1, round(left))) if left <= steps[-1] - steps[0] else None


@HEAD_VERDICTS.register("collapsed")
@head_verdict("alarm", needs=("top_1", "even_weight", "entropy"))
def collapsed(head: HeadHistory) -> Finding | None:
    """All attention on one key in each row, a key that has no name of its own.

    A head that attends to the first or to the previous token is one-hot too, but that is what it does: it has another
    verdict, and no alarm.
    """
    share = beyond_even(head["top_1"], head["even_weight"])
    return (
        None
        if _named(head)
        else head.as_long_as(
            share >= ONE_KEY,
            f"{head.now('top_1'):.1%} of its attention is on one key (evenly: {head.now('even_weight'):.1%}), entropy "
            f"{head.now('entropy'):.2g} nats; at most {2 * (1 - share[-1]):.0%} of the gradient still reaches its logits",
        )
    )


@HEAD_VERDICTS.register("uniform")
@head_verdict("notice", needs=("entropy", "normalized_entropy"))
def uniform(head: HeadHistory) -> Finding | None:
    """Attention spread evenly over all keys: the head takes a plain mean.  Before training most heads do."""
    share = head["normalized_entropy"]
    largest = np.divide(head["entropy"], share, out=np.full_like(share, np.nan), where=share > 0)
    missing = largest - head["entropy"]
    return head.as_long_as(
        missing <= EVEN, f"its entropy is {head.now('entropy'):.3f} nats, {share[-1]:.2%} of the largest possible"
    )


@HEAD_VERDICTS.register("sink")
@head_verdict("notice", needs=("first_token", "even_weight"))
def sink(head: HeadHistory) -> Finding | None:
    """Most attention on the first token, whatever it is: the head does little."""
    return _lies_on(head, "first_token", "the first token")


@HEAD_VERDICTS.register("frozen")
@head_verdict("notice", needs="moved")
def frozen(head: HeadHistory) -> Finding | None:
    """Attention that moved and then stopped: `results/snap.py`, as for text."""
    snap = find_snap(head.steps, head["moved"])
    return None if snap.step is None else Finding(int(snap.step), str(snap))


@HEAD_VERDICTS.register("induction-like")
@head_verdict("pattern", needs="prefix_matching")
def induction_like(head: HeadHistory) -> Finding | None:
    """Most attention on the token after an earlier occurrence of the same token, in random tokens repeated once.

    There at least R keys, the length of what is repeated, share the attention of a row: by chance the score is below
    1/R, so no even share is taken off.
    """
    score = head["prefix_matching"]
    return head.as_long_as(
        score >= MOST,
        f"on repeated random tokens {score[-1]:.0%} of its attention is on what followed the same token before",
    )


@HEAD_VERDICTS.register("previous-token")
@head_verdict("pattern", needs=("previous_token", "even_weight"))
def previous_token(head: HeadHistory) -> Finding | None:
    """Most attention on the token before."""
    return _lies_on(head, "previous_token", "the previous token")


@HEAD_VERDICTS.register("sparse")
@head_verdict("pattern", needs=("normalized_entropy", "effective_keys", "top_5"))
def sparse(head: HeadHistory) -> Finding | None:
    """Attention on few keys."""
    return head.as_long_as(
        head["normalized_entropy"] <= FEW_KEYS,
        f"its entropy is {head.now('normalized_entropy'):.0%} of the largest possible: as if on "
        f"{head.now('effective_keys'):.1f} keys, with {head.now('top_5'):.0%} of it on five",
    )


def _lies_on(head: HeadHistory, name: str, key: str) -> Finding | None:
    share = beyond_even(head[name], head["even_weight"])
    return head.as_long_as(
        share >= MOST, f"{head.now(name):.0%} of its attention is on {key} (evenly: {head.now('even_weight'):.1%})"
    )
