"""What attention did in a run: when common tokens lost it, which token won, and when the pattern froze.

Common tokens *have lost* attention from the first record after which their share, averaged over classes, stays at least
`LEAST_LOSS_OF_ATTENTION` below its start.  The *winner* of a class is the token it attends to most at the end; another
token with at least `CLOSE_SHARE` of the winner's attention is close.  A run has *snapped* when the last of its moving
patterns has frozen, and only *slowed* if one of them did not stay where it was (`metrics.py`).  Patterns are those of
each class, layer and head.

If classes share every token, none is distinct.  The story is then about the tokens that a class does not favor
(`measure.favored`), and it begins with the most distinct tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from scansnap.results.measure import distinctness, favored, favored_entropy, record_dimension, snaps, top_k_mass
from scansnap.results.metrics import STAYED

LEAST_LOSS_OF_ATTENTION = 0.01
CLOSE_SHARE = 0.9
"""The share of the winner's attention from which on the next token is close."""

WINNERS_IN_A_SENTENCE = 3
"""The most winners that are named in a sentence."""

ADVICE = {
    "not yet": "train longer to see whether it comes",
    "hardly moved": "train longer, or with a larger lr_z",
    "too short": "record more often",
}
"""What to do where there is no snap, by the status of a pattern without one."""

DEFAULT_OPTIONS = {
    "optimizer": "sgd",
    "momentum": None,
    "schedule": "constant",
    "weight_decay": 0.0,
    "clip": None,
    "layers": 1,
    "heads": 1,
    "residual": False,
    "normalization": "l2",
    "decoder_gradient": "true",
}
"""Options that a run is described by if they differ from these."""

COMMON = "common tokens"
NOT_FAVORED = "tokens that are not favored"


@dataclass(frozen=True)
class Winner:
    """The token that a class attends to most."""

    next_token: str
    token: str
    kind: str  # "distinct", "common" or what else the token is in the class
    share: float
    distinctness: float | None = None  # of the token for the next token; None if the result does not say its classes
    second: str | None = None  # the token with the most attention after it; None if the class has no other
    second_share: float = 0.0

    def __str__(self) -> str:
        by_degrees = self.kind == "common" and self.distinctness is not None
        degree = f", distinctness {self.distinctness:.2f}" if by_degrees else ""
        is_close = self.second_share >= CLOSE_SHARE * self.share > 0
        close = f"; token {self.second} is close with {self.second_share:.0%}" if is_close else ""
        return f"token {self.token} for next token {self.next_token} ({self.kind}{degree}, {self.share:.0%}{close})"


@dataclass(frozen=True)
class Story:
    """What attention did in one run."""

    losers: str  # the tokens that should lose: common ones, or those that are not favored if none is distinct
    scan_step: float | None  # from when on they had lost `LEAST_LOSS_OF_ATTENTION`; None if they have not
    losers_first: float | None  # their share of attention; None if there are none
    losers_last: float | None
    most_distinct: tuple[tuple[str, str, float], ...]  # token, next token, distinctness; empty if any is distinct
    winners: tuple[Winner, ...]  # of each class, in the first head of the last layer
    snap_step: float | None  # when the last pattern slowed; None if one still moves or none has moved
    status: str  # "frozen", "slowed" if a pattern did not stay where it was, or why there is no snap
    moved_since: float | None  # share of attention that moved after the snap, the most of any pattern
    moved_until: float | None  # and before it, in the same pattern
    frozen: int  # patterns
    patterns: int
    evidence: str  # as status and moved_since, of the pattern that moved most after its snap, or of one without
    unit: str  # "step" or "time"

    @property
    def sentences(self) -> list[str]:
        """What attention did, one fact each: the most distinct tokens if none is distinct, scan, winners, snap."""
        facts = [*self._kinds(), self.scan, self._winner_sentence(), self._snap()]
        return [f"{fact[0].upper()}{fact[1:]}." for fact in facts]

    def _kinds(self) -> list[str]:
        if not self.most_distinct:
            return []
        names = [f"token {token} for next token {next_token} ({d:.2f})" for token, next_token, d in self.most_distinct]
        return [f"classes share every token, so none is distinct; the most distinct: {_listed(names)}"]

    @property
    def scan(self) -> str:
        """When and how far the tokens that should lose did, in words."""
        if self.losers_first is None or self.losers_last is None:
            return f"no token is {'common to several next tokens' if self.losers == COMMON else 'favored by any class'}"
        first, last = f"{self.losers_first:.0%}", f"{self.losers_last:.0%}"
        shares = f"their share stayed at {last}" if first == last else f"their share went from {first} to {last}"
        if self.scan_step is None:
            return f"{self.losers} lost less than {LEAST_LOSS_OF_ATTENTION:.0%} of attention: {shares}"
        return f"{self.losers} lost attention from {_moment(self.scan_step, self.unit)} on: {shares}"

    def _winner_sentence(self) -> str:
        return f"most attended: {_listed([str(winner) for winner in self.winners])}"

    def _snap(self) -> str:
        if self.snap_step is not None and self.moved_since is not None:
            when = f"{'at' if self.patterns == 1 else 'by'} {_moment(self.snap_step, self.unit)}"
            if self.status == "frozen":
                most = "at most " if self.patterns > 1 else ""
                moved = "less than 1%" if self.moved_since < 0.005 else f"{most}{self.moved_since:.0%}"
                return f"attention snapped {when} ({moved} of it moved after that)"
            return (
                f"attention slowed {when} but did not snap: {self.moved_since:.0%} of it moved after that, more than "
                f"{STAYED:.0%} of the {self.moved_until:.0%} before"
            )
        if self.frozen:
            return f"{self.frozen} of {self.patterns} patterns have snapped"
        return f"no snap ({self.evidence}): {ADVICE[self.status]}"


def stories(dataset: xr.Dataset) -> list[Story]:
    """The story of each run of a result that recorded attention at least twice."""
    axis = record_dimension(dataset)
    patterns = snaps(dataset)
    degrees = distinctness(dataset) if "classes" in dataset.attrs else None
    is_common = dataset["token_kind"] == "common"
    losers, loses = COMMON, is_common
    if degrees is not None and not bool((dataset["token_kind"] == "distinct").any()):
        losers, loses = NOT_FAVORED, ~favored(dataset)
    return [
        _story(dataset.isel(run=r), patterns.isel(run=r), axis, losers, loses, degrees)
        for r in range(dataset.sizes["run"])
    ]


def _story(
    run: xr.Dataset, patterns: xr.Dataset, axis: str, losers: str, loses: xr.DataArray, degrees: xr.DataArray | None
) -> Story:
    lost = run["attention"].where(loses, 0.0).sum("token", skipna=False)
    share = lost.mean([d for d in lost.dims if d != axis]).values
    scan_step = None
    has_lost = share <= share[0] - LEAST_LOSS_OF_ATTENTION
    if has_lost[-1]:
        begin = len(share) - int(np.argmin(has_lost[::-1]))  # the record after the last that had not lost
        scan_step = float(run[axis].values[begin])
    status, step = patterns["snap_status"].values.ravel(), patterns["snap_step"].values.ravel()
    since, until = (patterns[name].values.ravel() for name in ("moved_since", "moved_until"))
    is_moving, has_slowed = status == "not yet", np.isfinite(step)
    has_snapped = bool(has_slowed.any()) and not bool(is_moving.any())
    if has_snapped:
        left = has_slowed & (since > STAYED * until)
        telling = int(np.nanargmax(np.where(left, since, np.nan) if left.any() else since))
    else:
        telling = int(np.argmax(is_moving if is_moving.any() else ~has_slowed))
    exist = bool(loses.any()) and not (losers == NOT_FAVORED and bool(loses.all()))
    return Story(
        losers,
        scan_step,
        float(share[0]) if exist else None,
        float(share[-1]) if exist else None,
        () if losers == COMMON or degrees is None else _most_distinct(run, degrees),
        _winners(run.isel({axis: -1, "layer": -1, "head": 0}), degrees),
        float(np.nanmax(step)) if has_snapped else None,
        str(status[telling]),
        float(since[telling]) if has_snapped else None,
        float(until[telling]) if has_snapped else None,
        int((status == "frozen").sum()),
        len(status),
        str(patterns["evidence"].values.ravel()[telling]),
        axis,
    )


def summarize_snaps(steps: ArrayLike, stay: ArrayLike, unit: str) -> str:
    """When runs snapped, in one sentence for all; a run has slowed at its step, if it is a number."""
    when, stays = np.asarray(steps, np.float64), np.asarray(stay)
    snapped, left = when[np.isfinite(when) & stays], when[np.isfinite(when) & ~stays]
    words = f"none of {len(when)} runs has snapped"
    if len(snapped):
        words = f"{len(snapped)} of {len(when)} runs have snapped, {_span(snapped, unit)}"
    return f"{words}; {len(left)} slowed {_span(left, unit)}, but moved on" if len(left) else words


def _span(steps: NDArray[np.float64], unit: str) -> str:
    first, last = (_moment(step, unit) for step in (steps.min(), steps.max()))
    return f"at {first}" if first == last else f"between {first} and {last}"


def _moment(when: float, unit: str) -> str:
    """A step as a whole number, or a time to three digits."""
    return f"step {when:,.0f}" if unit == "step" else f"time {when:.3g}"


def _most_distinct(run: xr.Dataset, degrees: xr.DataArray) -> tuple[tuple[str, str, float], ...]:
    """The most distinct token of each class, its next token and its distinctness."""
    best = degrees.transpose("class", "token").values
    names = run["token_name"].values
    return tuple(
        (str(names[row.argmax()]), str(next_token), float(row.max()))
        for next_token, row in zip(run["next_token_name"].values, best, strict=True)
    )


def _winners(last: xr.Dataset, degrees: xr.DataArray | None) -> tuple[Winner, ...]:
    attention = last["attention"].fillna(0.0).transpose("class", "token").values
    ranked = np.argsort(-attention, axis=1, kind="stable")
    kinds, names = last["token_kind"].values, last["token_name"].values
    winners = []
    for n, next_token in enumerate(last["next_token_name"].values):
        token, second = ranked[n, 0], ranked[n, 1] if ranked.shape[1] > 1 else None
        winners.append(
            Winner(
                str(next_token),
                str(names[token]),
                str(kinds[token]),
                float(attention[n, token]),
                None if degrees is None else float(degrees.values[n, token]),
                None if second is None else str(names[second]),
                0.0 if second is None else float(attention[n, second]),
            )
        )
    return tuple(winners)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - WINNERS_IN_A_SENTENCE} more" if len(names) > WINNERS_IN_A_SENTENCE else ""
    return f"{', '.join(names[:WINNERS_IN_A_SENTENCE])}{more}"


def summarize(dataset: xr.Dataset) -> list[dict[str, Any]]:
    """One entry per run: first and last loss, accuracy, entropy, where attention went, and when it scanned and snapped.

    `story` says the last in sentences; it is there if attention was recorded at least twice.
    """
    axis = record_dimension(dataset)
    ends = dataset.isel({axis: [0, -1]})
    if "attention" in dataset and "classes" in dataset.attrs:
        on_favored = ends["attention"].where(favored(ends), 0.0).sum("token", skipna=False)
        ends = ends.assign(favored=on_favored, favored_entropy=favored_entropy(ends))
    runs = [_run(ends.isel(run=r), axis) for r in range(dataset.sizes["run"])]
    if "attention" in dataset and dataset.sizes[axis] > 1:
        for facts, story in zip(runs, stories(dataset), strict=True):
            facts |= _story_fields(story) if facts["status"] == "ok" else {}
    return runs


def _story_fields(story: Story) -> dict[str, Any]:
    return {
        "scan_step": story.scan_step,
        "snap_step": story.snap_step,
        "snap_status": story.status,
        "moved_since": story.moved_since,
        "winners": [vars(winner) for winner in story.winners],
        "story": story.sentences,
    }


def options_in_words(attrs: Mapping[str, Any]) -> str:
    """The options besides the rates that decide how a run trains, where they are not the usual ones."""
    options = json.loads(attrs.get("options", "{}"))
    words = ""
    for name, usual in DEFAULT_OPTIONS.items():
        value = options.get(name)
        if value not in (usual, None):
            shown = "" if value is True else f" {value:g}" if isinstance(value, float) else f" {value}"
            words += f", {name.replace('_', ' ')}{shown}"
    return words


def momentum_note(attrs: Mapping[str, Any]) -> str | None:
    """That momentum can move attention without a gradient, and a run to compare with; None without momentum."""
    options = json.loads(attrs.get("options", "{}"))
    setting = re.search(r"momentum=(0\.\d+)", str(options.get("optimizer")))  # of `ss.SGD(momentum=0.9)`
    momentum, steps = float(setting[1]) if setting else options.get("momentum"), options.get("steps")
    if not (isinstance(momentum, float) and 0 < momentum < 1 and steps):
        return None
    longer = float(f"{steps / (1 - momentum):.3g}")
    return (
        f"Momentum {momentum:g} can keep attention moving after the gradient has vanished. To see how much of this is "
        f"momentum, train {longer:,.0f} steps with momentum 0."
    )


def _run(run: xr.Dataset, axis: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "run": int(run["run"]),
        "lr_y": float(run["lr_y"]),
        "lr_z": float(run["lr_z"]),
        "seed": int(run["seed"]),
        "options": options_in_words(run.attrs).removeprefix(", "),
        "status": str(run["status"].values),
    }
    if int(run.get("diverged_step", -1)) >= 0:
        facts["diverged_step"] = int(run["diverged_step"])
    for name in ("loss", "accuracy", "fresh_loss", "fresh_accuracy", "entropy", "favored_entropy", "favored"):
        if name in run:
            values = run[name].mean([d for d in run[name].dims if d != axis])
            facts[f"{name}_first"], facts[f"{name}_last"] = _ends(values)
    if "attention" in run:
        common = run["attention"].where(run["token_kind"] == "common", 0.0).sum("token", skipna=False)
        for name, values in (("common", common), ("top", top_k_mass(run, 1))):
            means = values.mean([d for d in values.dims if d != axis], skipna=False)
            facts[f"{name}_first"], facts[f"{name}_last"] = _ends(means)
    return facts


def _ends(values: xr.DataArray) -> tuple[float | None, float | None]:
    """The first and the last record; None for values that are not finite."""
    return tuple(float(v) if np.isfinite(v) else None for v in (values.values[0], values.values[-1]))  # type: ignore[return-value]
