"""The verdict rules: what a head's history must show to be called collapsed, a sink, frozen and so on.

A rule is a function of one head's history that returns a `Judgment`, or None where the verdict does not hold.  The
built-in ones are made the way you make your own:

    @HEAD_VERDICTS.register("wandering")
    @head_verdict("notice", needs="moved")
    def wandering(head):
        return head.as_long_as(head["moved"] > 0.5, f"{head.now('moved'):.0%} of its attention has just moved")

How large a weight on one key is depends on the number of keys: a head with uniform attention gives each of n keys 1/n.
Let u be the mean of 1/n over the measured rows (`even_weight`).  The rules rescale a weight w to

    s = (w - u)/(1 - u),                                                                    (`rescale_weight`)

which is 0 for uniform attention and 1 if all attention is on that key, whatever the length of the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from scansnap.monitor.dataset import FINITE, LEARNING_RATE
from scansnap.runtime.errors import unknown
from scansnap.runtime.snap import find_snap
from scansnap.validation.user_code import Registry
from scansnap.validation.validate import validated

Severity = Literal["alarm", "notice", "pattern"]
"""What a verdict asks of you, most urgent first: look now, look when you can, or nothing (it describes the head)."""

MAJORITY_SHARE = 0.5
"""A head is named for a key if its rescaled weight s on it is at least this: the key gets more attention than all
others together."""

NEAR_LIMIT_SHARE = 0.9
"""A verdict that held before survives one snapshot at this share of its limit: sampled rows make weights vary."""

COLLAPSE_SHARE = 0.95
"""Attention has collapsed if the rescaled weight on one key is at least this.  The gradient reaches a row's
logits through diag(p) - pp', whose trace 1 - sum p^2 is at most 1 - top_1^2 <= 2 (1 - top_1): at 0.95 no more than a
tenth of what an even row lets through.  The head hardly learns where to look any more."""

UNIFORM_ENTROPY_GAP = 0.02
"""Attention is uniform if its entropy is within this many nats of the largest.  That distance is the divergence
KL(p || even), so by Pinsker's inequality at most sqrt(0.02/2) = a tenth of the attention would have to move."""

SPARSE_ENTROPY_SHARE = 0.5
"""Attention is sparse if its entropy is at most half of the largest: exp(H) <= sqrt(n), as if spread evenly over the
square root of the keys it may see."""

EXPLODED_LOGIT = 256.0
"""Logits have exploded if bfloat16, whose numbers have 8 bits, rounds them by up to 256 * 2^-8 = 1: a weight is then
wrong by up to a factor of e before it is normalized.  That is so of negative logits too."""

GROWING_LOGIT = 32.0
"""Growth is followed from here, where rounding is wrong by an eighth; below, logits grow fast in any early training."""

GROWTH_SHARE = 0.2
"""Growth is judged over the last fifth of the steps, the share that `runtime/snap.py` asks of a frozen pattern."""


@dataclass(frozen=True)
class HeadHistory:
    """The measurements of one head over all snapshots; missing snapshots are left out.

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
        """A quantity at the last snapshot."""
        return float(self.values[name][-1])

    def as_long_as(
        self, holds: NDArray[np.bool_], evidence: str, *, nearly: NDArray[np.bool_] | None = None
    ) -> Judgment | None:
        """The evidence for what holds at the last snapshot, with the step since which it does; None if it does not.

        A single snapshot at which it holds `nearly` does not end what held at the snapshot before.
        """
        if nearly is not None:
            before = np.concatenate([[False], holds[:-1]])
            holds = holds | (nearly & before)
        if not holds[-1]:
            return None
        starts = np.flatnonzero(holds & ~np.concatenate([[False], holds[:-1]]))
        ends = np.flatnonzero(holds[:-1] & ~holds[1:]) + 1
        episodes = zip(self.steps[starts].tolist(), [*self.steps[ends].tolist(), None], strict=True)
        return Judgment(int(self.steps[starts[-1]]), evidence, tuple(episodes))


@dataclass(frozen=True)
class Judgment:
    """That a verdict holds: since which step, why, and when it began and ended before."""

    since: int
    evidence: str
    episodes: tuple[tuple[int, int | None], ...] = ()  # the steps at which each began and ended; None if it holds

    def __post_init__(self) -> None:
        if not self.episodes:
            object.__setattr__(self, "episodes", ((self.since, None),))


@dataclass(frozen=True)
class VerdictRule:
    """A rule: `judge` returns a judgment if it holds of a head whose history has all that it `needs`.

    `names_key`: the verdict names the key that most of the attention lies on, so that such a head is not "collapsed"
    however sharp it is.
    """

    judge: Callable[[HeadHistory], Judgment | None]
    severity: Severity
    needs: tuple[str, ...]
    names_key: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "__wrapped__", self.judge)  # where Python looks for the function it is made of
        if self.severity not in get_args(Severity):
            raise unknown("severity", self.severity, get_args(Severity))

    @property
    def meaning(self) -> str:
        """The first line of the function's docstring."""
        return (self.judge.__doc__ or "").partition("\n")[0]


HEAD_VERDICTS: Registry[VerdictRule] = Registry("verdict", "judge")
"""Verdicts on heads by name.

>>> "sink" in ss.HEAD_VERDICTS
True
"""


@validated
def head_verdict(
    severity: Severity, *, needs: str | Sequence[str], names_key: bool = False
) -> Callable[[Callable[[HeadHistory], Judgment | None]], VerdictRule]:
    """A decorator that turns a function of a `HeadHistory` into a verdict rule.

    `needs` names the quantities that the rule reads.  With `names_key`, a head of which the rule holds is not judged
    "collapsed": it attends to one key, which the verdict names.

    >>> @ss.head_verdict("notice", needs="top_1")
    ... def peaked(history: ss.HeadHistory):
    ...     return None
    >>> peaked.severity
    'notice'
    """
    names = (needs,) if isinstance(needs, str) else tuple(needs)
    return lambda judge: VerdictRule(judge, severity, names, names_key)


def rescale_weight(weight: NDArray[np.float64], even: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rescaled weight s on a key, which is 0 for uniform attention; NaN where there is one key only."""
    return np.divide(weight - even, 1 - even, out=np.full_like(weight, np.nan), where=even < 1)


def _at_most(share: float) -> str:
    """A bound in words; one that would be rounded to 0% is not."""
    return "under 0.5%" if share < 0.005 else f"at most {share:.0%}"


def _judge_majority(head: HeadHistory, share: NDArray[np.float64], evidence: str) -> Judgment | None:
    """Judge that a share is at least `MAJORITY_SHARE`, or nearly so at one snapshot."""
    return head.as_long_as(share >= MAJORITY_SHARE, evidence, nearly=share >= NEAR_LIMIT_SHARE * MAJORITY_SHARE)


def _judge_key(head: HeadHistory, weight: str, key: str) -> Judgment | None:
    """Judge that most attention lies on a key."""
    share, even = rescale_weight(head[weight], head["even_weight"]), head.now("even_weight")
    return _judge_majority(head, share, f"{head.now(weight):.0%} of its attention is on {key} (evenly: {even:.1%})")


def _judge_place(
    head: HeadHistory, weight: str, place: str, key: str, *, apart_from: Sequence[int] = ()
) -> Judgment | None:
    """Judge that attention stays at its current place, except places with a verdict of their own."""
    is_there = (head[place] == head[place][-1]) & ~np.isin(head[place], apart_from)
    there = replace(head, values={**head.values, weight: np.where(is_there, head[weight], 0.0)})
    return _judge_key(there, weight, key)


def _holds(name: str, head: HeadHistory) -> bool:
    """Whether another rule holds of a head."""
    rule = HEAD_VERDICTS.member(name)
    return set(rule.needs) <= set(head.values) and rule.judge(head) is not None


def _has_named_key(head: HeadHistory) -> bool:
    """Whether another rule names the key that most of the attention lies on."""
    return any(HEAD_VERDICTS.member(name).names_key and _holds(name, head) for name in HEAD_VERDICTS)


@HEAD_VERDICTS.register("not-finite")
@head_verdict("alarm", needs=FINITE)
def not_finite(head: HeadHistory) -> Judgment | None:
    """Logits that are NaN or infinite, in the layer that was the first to have such."""
    return head.as_long_as(head[FINITE] == 0, "its logits are NaN or infinite: nothing can be measured here")


@HEAD_VERDICTS.register("exploding-logits")
@head_verdict("alarm", needs="largest_logit")
def exploding_logits(head: HeadHistory) -> Judgment | None:
    """Logits so large that weights are badly rounded, or on the way there.

    Growth is exponential where the loss rewards ever larger logits, so the line through the logarithms of the last
    fifth of the steps (at least four snapshots) is drawn on: they are on the way if each is above the one before and
    the line reaches `EXPLODED_LOGIT` before the run is twice as long.
    """
    logits, now = head["largest_logit"], head.now("largest_logit")
    growth = _measure_growth(head.steps, logits)
    if growth is None and now < NEAR_LIMIT_SHARE * EXPLODED_LOGIT:
        return None  # as for most heads: when it held before need not be found
    holds = logits >= EXPLODED_LOGIT
    for i in np.flatnonzero((logits >= GROWING_LOGIT) & ~holds):
        holds[i] = _measure_growth(head.steps[: i + 1], logits[: i + 1]) is not None
    if growth is None:
        evidence = (
            f"its largest logit has the size {now:,.0f}; from {EXPLODED_LOGIT:.0f} on, bfloat16 rounds weights by a "
            "factor of up to e"
        )
    else:
        begin, left = growth
        evidence = (
            f"its largest logit has the size {now:.0f}, {now / logits[begin]:.1f} times that of step "
            f"{head.steps[begin]:,}{_describe_factors(head, begin)}; at this rate it reaches {EXPLODED_LOGIT:.0f} in "
            f"{left:,} step{'' if left == 1 else 's'}"
        )
    return head.as_long_as(holds, evidence, nearly=logits >= NEAR_LIMIT_SHARE * EXPLODED_LOGIT)


def _describe_factors(head: HeadHistory, begin: int) -> str:
    """What norms and alignment of queries and keys were and are, if they are recorded."""
    names = ("query_norm", "key_norm", "alignment")
    if not set(names) <= set(head.values):
        return ""
    grown = [f"{name.replace('_', ' ')} {head[name][begin]:.2g} to {head.now(name):.2g}" for name in names]
    return f" ({', '.join(grown)})"


def _measure_growth(steps: NDArray[np.int64], logits: NDArray[np.float64]) -> tuple[int, int] | None:
    """From which snapshot on logits have grown, and the steps left until `EXPLODED_LOGIT`; None if that is far."""
    begin = min(int(np.searchsorted(steps, steps[-1] - GROWTH_SHARE * np.ptp(steps))), len(logits) - 4)
    is_growing = begin >= 0 and logits[begin] > 0 and (np.diff(logits[begin:]) > 0).all()
    if not is_growing or not GROWING_LOGIT <= logits[-1] < EXPLODED_LOGIT:
        return None
    rate = float(np.polyfit(steps[begin:], np.log(logits[begin:]), 1)[0])
    left = np.log(EXPLODED_LOGIT / logits[-1]) / rate
    return (begin, max(1, round(left))) if left <= steps[-1] - steps[0] else None


@HEAD_VERDICTS.register("collapsed")
@head_verdict("alarm", needs=("top_1", "even_weight", "entropy"))
def collapsed(head: HeadHistory) -> Judgment | None:
    """All attention on one key in each row, a key that no other verdict names.

    A head that attends to the first or to the previous token is one-hot too, but that is what it does: it has another
    verdict, and no alarm.
    """
    share = rescale_weight(head["top_1"], head["even_weight"])
    judgment = head.as_long_as(
        share >= COLLAPSE_SHARE,
        f"{head.now('top_1'):.1%} of its attention is on one key (evenly: {head.now('even_weight'):.1%}), entropy "
        f"{head.now('entropy'):.2g} nats; {_at_most(2 * (1 - share[-1]))} of the gradient still reaches its logits",
        nearly=share >= NEAR_LIMIT_SHARE * COLLAPSE_SHARE,
    )
    return None if judgment is None or _has_named_key(head) else judgment


@HEAD_VERDICTS.register("uniform")
@head_verdict("notice", needs=("entropy", "normalized_entropy"))
def uniform(head: HeadHistory) -> Judgment | None:
    """Attention spread evenly over all keys: the head takes a plain mean.  Before training most heads do."""
    share = head["normalized_entropy"]
    largest = np.divide(head["entropy"], share, out=np.full_like(share, np.nan), where=share > 0)
    missing = largest - head["entropy"]
    evidence = f"its entropy is {head.now('entropy'):.3f} nats, {share[-1]:.2%} of the largest possible"
    return head.as_long_as(
        missing <= UNIFORM_ENTROPY_GAP, evidence, nearly=missing <= UNIFORM_ENTROPY_GAP / NEAR_LIMIT_SHARE
    )


@HEAD_VERDICTS.register("sink")
@head_verdict("notice", needs=("first_token", "even_weight"), names_key=True)
def sink(head: HeadHistory) -> Judgment | None:
    """Most attention on the first token, whatever it is: the head does little."""
    return _judge_key(head, "first_token", "the first token")


@HEAD_VERDICTS.register("learned-sink")
@head_verdict("notice", needs="learned_sink", names_key=True)
def learned_sink(head: HeadHistory) -> Judgment | None:
    """Most attention on the model's learned sink, which is no token: the head does little."""
    mass = head["learned_sink"]
    evidence = f"{mass[-1]:.0%} of its attention is on the model's learned sink"
    return _judge_majority(head, mass, evidence)


@HEAD_VERDICTS.register("dormant")
@head_verdict("notice", needs="dormant_rows")
def dormant(head: HeadHistory) -> Judgment | None:
    """Most rows attend to the first token, whose value is so small that they get little: the head is switched off."""
    share = head["dormant_rows"]
    evidence = f"for {share[-1]:.0%} of tokens it attends to the first token and gets at most half of a usual value"
    return _judge_majority(head, share, evidence)


@HEAD_VERDICTS.register("frozen")
@head_verdict("notice", needs="moved")
def frozen(head: HeadHistory) -> Judgment | None:
    """Attention that moved and then stopped.

    It is judged as in `runtime/snap.py`.  If the learning rate is known, it has to stop relative to that too.
    """
    snap = find_snap(head.steps, head["moved"])
    if snap.step is None or _follows_rate(head):
        return None
    share = snap.later_rate / snap.peak_rate
    evidence = (
        f"its attention moved by up to {snap.peak_rate:.2g} per step (around step {snap.peak_step:,.6g}), and since "
        f"step {snap.step:,.6g} by {_at_most(share)} of that ({snap.later_records} snapshots)"
    )
    return Judgment(int(snap.step), evidence)


@HEAD_VERDICTS.register("rate-vanished")
@head_verdict("pattern", needs=("moved", LEARNING_RATE))
def rate_vanished(head: HeadHistory) -> Judgment | None:
    """Attention that stopped because the learning rate did: it moves as far as before for each unit of the rate."""
    snap, rates = find_snap(head.steps, head["moved"]), head[LEARNING_RATE]
    if snap.step is None or not _follows_rate(head):
        return None
    left = rates[-1] / np.nanmax(rates)
    return Judgment(int(snap.step), f"its attention stopped as the learning rate fell to {left:.1%} of its peak")


def _follows_rate(head: HeadHistory) -> bool:
    """Whether attention goes on moving if time is counted in learning rate times steps."""
    if LEARNING_RATE not in head.values:
        return False
    passed = np.diff(head.steps) * np.nan_to_num(head[LEARNING_RATE][1:])
    moves = np.concatenate([[True], passed > 0])
    times = np.concatenate([[0.0], np.cumsum(passed)])[moves]
    return find_snap(times, head["moved"][moves]).step is None


@HEAD_VERDICTS.register("induction-like")
@head_verdict("pattern", needs="prefix_matching", names_key=True)
def induction_like(head: HeadHistory) -> Judgment | None:
    """Most attention on the token after an earlier occurrence of the same token, in random tokens repeated once.

    There at least R keys, the length of what is repeated, share the attention of a row: by chance the score is below
    1/R, so no even share is taken off.
    """
    score = head["prefix_matching"]
    evidence = f"on repeated random tokens {score[-1]:.0%} of its attention is on what followed the same token before"
    return _judge_majority(head, score, evidence)


@HEAD_VERDICTS.register("previous-token")
@head_verdict("pattern", needs=("previous_token", "even_weight"), names_key=True)
def previous_token(head: HeadHistory) -> Judgment | None:
    """Most attention on the token before."""
    return _judge_key(head, "previous_token", "the previous token")


@HEAD_VERDICTS.register("current-token")
@head_verdict("pattern", needs=("offset_weight", "offset", "even_weight"), names_key=True)
def current_token(head: HeadHistory) -> Judgment | None:
    """Most attention of each token on itself."""
    return _judge_place(head, "offset_weight", "offset", "the token itself") if head.now("offset") == 0 else None


@HEAD_VERDICTS.register("fixed-offset")
@head_verdict("pattern", needs=("offset_weight", "offset", "even_weight"), names_key=True)
def fixed_offset(head: HeadHistory) -> Judgment | None:
    """Most attention a fixed number of tokens before or after each token, more than one before."""
    back = int(head.now("offset"))
    key = f"the key {back} tokens back" if back > 0 else f"the key {-back} token{'' if back == -1 else 's'} ahead"
    return _judge_place(head, "offset_weight", "offset", key, apart_from=(0, 1))


@HEAD_VERDICTS.register("one-token")
@head_verdict("pattern", needs=("token_weight", "token_id", "even_weight"), names_key=True)
def one_token(head: HeadHistory) -> Judgment | None:
    """Most attention on one token of the vocabulary wherever it is, such as [SEP]; not where that is a sink."""
    if _holds("sink", head):
        return None
    return _judge_place(head, "token_weight", "token_id", f"the token with id {head.now('token_id'):.0f}")


@HEAD_VERDICTS.register("one-position")
@head_verdict("pattern", needs=("position_weight", "position", "even_weight"), names_key=True)
def one_position(head: HeadHistory) -> Judgment | None:
    """Most attention on one place of the window, which is neither the first token nor always the same token."""
    if _holds("sink", head) or _holds("one-token", head):
        return None
    return _judge_place(head, "position_weight", "position", f"position {head.now('position'):.0f} of the window")


@HEAD_VERDICTS.register("sparse")
@head_verdict("pattern", needs=("normalized_entropy", "effective_keys"))
def sparse(head: HeadHistory) -> Judgment | None:
    """Attention on few keys."""
    return head.as_long_as(
        head["normalized_entropy"] <= SPARSE_ENTROPY_SHARE,
        f"its entropy is {head.now('normalized_entropy'):.0%} of the largest possible: as if on "
        f"{head.now('effective_keys'):.1f} keys",
        nearly=head["normalized_entropy"] <= SPARSE_ENTROPY_SHARE / NEAR_LIMIT_SHARE,
    )
