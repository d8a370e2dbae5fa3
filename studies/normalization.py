"""Standard LayerNorm and l2 normalization, with vocabularies of several sizes; and classes that are not equally likely.

The mean of attention over the vocabulary is 1/M, so that |c - mean|^2 = |c|^2 - 1/M, and the effects of the two
normalizations on a run differ by O(1/M).  The difference is measured along the population dynamics.

A class drawn with probability P(n) moves its own rows of Y and Z at rates in proportion to P(n), which would give each
class a clock of its own, P(n) t.  But classes push each other through the tokens they share.  Measured is the time at
which a class's most probable distinct token has gained a given logit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from scipy import stats

import scansnap as ss
from common import SYN_SMALL
from scansnap.figures.statistics import enough_seeds, exact, rise, significant, standard_error
from scansnap.figures.style import draw_band, label, legend, line

NORMALIZATIONS = ("l2", "layer")
SIZES = (34, 100, 300, 1000, 10_000)
RARER = (0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
SETTING = replace(SYN_SMALL, record_every=4)
GAIN = 0.1
"""A class has learned to attend when its lead has gained this logit."""


def prepare(*, num_seeds: int = 40) -> xr.Dataset:
    """`entropy` and `common` (normalization, seed, step), `difference` (vocab_size), and `learned` (rarer, member)."""
    num_seeds = enough_seeds(num_seeds)
    setting = {**vars(SETTING), "normalization": NORMALIZATIONS, "record": ("entropy", "attention")}
    runs = ss.sweep(ss.syn_small(), **{**setting, "seeds": range(num_seeds)}, progress=False).squeeze(drop=True)
    common = runs["attention"].where(runs["token_kind"] == "common", 0.0).sum("token").mean("class")
    return xr.Dataset(
        {
            "entropy": runs["entropy"].mean("class").assign_attrs(units="nats"),
            "common": common.assign_attrs(units="1"),
            "difference": ("vocab_size", [_difference(size) for size in SIZES], {"units": "1"}),
            "learned": (("rarer", "member"), np.array([_learned(p) for p in RARER]), {"units": "steps"}),
        },
        coords={"vocab_size": list(SIZES), "rarer": list(RARER), "member": ["rarer class", "other class"]},
        attrs=runs.attrs,
    )


def _difference(vocab_size: int) -> float:
    """The largest difference of Z after 1,000 steps between the two normalizations, relative to the largest entry."""
    classes = ss.synthetic(num_query=2, next_per_query=1, vocab_size=vocab_size)
    z = [
        ss.flow(
            classes,
            lr_y=1.0,
            lr_z=1.0,
            times=[1000.0],
            normalization=name,
            record=("attention_logits",),
            progress=False,
        )["attention_logits"].values
        for name in NORMALIZATIONS
    ]
    return float(np.abs(z[1] - z[0]).max() / np.abs(z[0]).max())


def _learned(rarer: float) -> tuple[float, float]:
    """When each of two classes, drawn with probabilities `rarer` and 1 - `rarer`, has learned to attend."""
    equal = ss.synthetic(num_query=2, next_per_query=1, vocab_size=1000)
    classes = ss.SequenceClasses.from_supports(
        tokens=[equal.support(i) for i in range(2)],
        probs=[equal.support_probs(i) for i in range(2)],
        query=equal.query,
        next_token=equal.next_token,
        vocab_size=equal.vocab_size,
        weights=[rarer, 1 - rarer],
    )
    times = np.geomspace(1, 1e4, 120)
    runs = ss.flow(classes, lr_y=1.0, lr_z=1.0, times=times, record=("attention_logits",), progress=False)
    z = runs["attention_logits"].isel(run=0, layer=0, head=0)
    lead = [z.isel(query=i).sel(token=classes.distinct_tokens(i)[-1]).values for i in range(2)]
    first, second = (float(np.interp(GAIN, values, times)) for values in lead)
    return first, second


def draw(dataset: xr.Dataset) -> Figure:
    """Attention on common tokens over training; the difference against M; the time to learn against P(n)."""
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for i, name in enumerate(dataset["normalization"].values):
        draw_band(left, dataset["common"].sel(normalization=name), i, f"{name} normalization")
    left.set_ylim(0, 0.7)
    label(left, x="updates", y="attention on common tokens (share)", title="Syn-Small, M = 34")
    legend(left, loc="lower left")
    sizes, difference = dataset["vocab_size"].values, dataset["difference"].values
    middle.loglog(sizes, difference, marker="o", **line(0), label="measured")
    middle.loglog(sizes, difference[-1] * sizes[-1] / sizes, **line(1), label="in proportion to 1/M")
    label(
        middle,
        x="vocabulary M (tokens)",
        y="largest $|z_{layer} - z_{l2}|$ / largest $|z_{l2}|$",
        title="population, 1,000 steps",
    )
    legend(middle)
    probs = np.stack([dataset["rarer"].values, 1 - dataset["rarer"].values], 1)
    for i, member in enumerate(dataset["member"].values):
        right.loglog(probs[:, i], dataset["learned"].sel(member=member), marker="o", **line(i), label=str(member))
    reference = dataset["learned"].values[0, 0] * probs[0, 0]
    right.axvline(0.5, color="gray", linewidth=0.6)
    right.loglog(probs[:, 0], reference / probs[:, 0], **line(2), label="in proportion to 1/P(n)")
    label(right, x="P(n) (probability of the class)", y=f"steps until z of its lead is {GAIN:g}", title="class weights")
    legend(right)
    runs = f"left: median and 5% to 95% of {dataset.sizes['seed']} runs"
    figure.suptitle(f"Beyond the basic setting: LayerNorm and class weights; {runs}", fontsize=11)
    return figure


def trends(dataset: xr.Dataset) -> list[ss.Trend]:
    """What LayerNorm changes at M = 34, how the change vanishes with M, and the clocks of classes."""
    common, entropy = dataset["common"], dataset["entropy"]
    last = common.isel(step=-1)
    slope = stats.linregress(np.log(dataset["vocab_size"].values[2:]), np.log(dataset["difference"].values[2:])).slope
    rarer, learned = dataset["rarer"].values, dataset["learned"].sel(member="rarer class").values
    clock = stats.linregress(np.log(rarer), np.log(learned)).slope
    lead = dataset["learned"].sel(member="other class").values / learned
    return [
        rise(
            "With LayerNorm, too, common tokens lose attention.",
            (common.isel(step=0) - last).sel(normalization="layer"),
            "attention lost by common tokens",
        ),
        rise(
            "With LayerNorm, too, attention on distinct tokens becomes sparse.",
            (entropy.isel(step=0) - entropy.isel(step=-1)).sel(normalization="layer"),
            "entropy lost",
        ),
        _unaffected(last.sel(normalization="layer") - last.sel(normalization="l2")),
        exact(
            "What LayerNorm changes falls like 1/M.",
            abs(slope + 1),
            f"log-log slope of the difference in Z against M, from {dataset['vocab_size'].values[2]} tokens on, is "
            f"{slope:.3f}: its distance from -1",
            at_most=0.1,
        ),
        exact(
            "A class learns on the clock P(n) t.",
            abs(clock + 1),
            f"log-log slope of the steps until a class's lead has gained {GAIN:g}, against P(n) from {rarer[0]:g} to "
            f"{rarer[-1]:g}, is {clock:.3f}: its distance from -1; both classes share ten common tokens",
            at_most=0.1,
        ),
        exact(
            "Of two classes that share tokens the rarer learns to attend first.",
            lead[1:].min(),
            f"time of the likelier class over that of the rarer, the least over P(n) from {rarer[1]:g} to "
            f"{rarer[-1]:g}; {lead[-1]:.3g} at {rarer[-1]:g}",
            above=1,
        ),
    ]


def _unaffected(difference: xr.DataArray, limit: float = 0.05) -> ss.Trend:
    """Whether the mean difference is within the limit, by two one-sided t tests."""
    values = difference.values.astype(float)
    error = float(standard_error(values))
    p = float(stats.t.sf((limit - abs(values.mean())) / error, len(values) - 1))
    statement = "Subtracting the mean does not affect the result much (M = 34)."
    note = (
        "attention on common tokens after training, LayerNorm minus l2; two one-sided paired t tests over "
        f"{len(values)} seeds"
    )
    return significant(statement, f"within ±{limit:g}", float(values.mean()), p, note, error=error)


FIGURE = ss.FigureRecipe(
    name="normalization",
    title="Standard LayerNorm, and classes that are not equally likely",
    statement=(
        "The analysis extends to standard LayerNorm, whose subtracted mean may not affect the results much (Section "
        "3). Classes that are not equally likely, which Theorem 1 excludes, would have clocks of their own, P(n) t, if "
        "they did not interact."
    ),
    setting=(
        f"Syn-Small, SGD with momentum {SETTING.momentum:g}, η_Y = η_Z = 1, batch 128, T = 128, zero start, 100 "
        "updates (left); population dynamics of it with up to 10,000 tokens, 1,000 steps (middle), and with class "
        "weights (right)"
    ),
    prepare=prepare,
    draw=draw,
    trends=trends,
)
