"""Readings of the paper: attention as TF-IDF, and what T counts."""

from __future__ import annotations

import numpy as np

from scansnap import theory
from scansnap.claims.check import Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray
from scansnap.data.sampling import sample_sequences
from scansnap.data.synthetic import syn_small
from scansnap.dynamics.train import train
from scansnap.results.measure import one_head


@claim(
    "Attention is a learnable TF-IDF: tokens of many classes lose weight, frequent tokens of one class gain it.",
    where="the authors' slides",
    category="holds under its assumptions",
    conditions="Syn-Small as published: SGD with momentum, batch 128, $T = 128$, 100 iterations",
    setting=lambda: Setting(syn_small(), lr_y=1.0, lr_z=1.0),
    wrong_factor=-1.0,
    needs=("distinct tokens everywhere", "common tokens"),
)
def tf_idf(check: Check) -> None:
    """Attention of twenty published runs against P(l|n) ln(K/|Omega(l)|): order, likeness, and amount."""
    classes = check.setting.classes
    recorded = one_head(
        train(
            classes,
            lr_y=check.setting.lr_y,
            lr_z=check.setting.lr_z,
            steps=100,
            batch_size=128,
            seq_len=128,
            momentum=0.9,
            seeds=check.seeds(20),
            record_every=10,
            record=("attention",),
            progress=False,
        )
    )["attention"]
    attention = recorded.mean("run").transpose("step", "class", "token").values
    probs = classes.probs[:, classes.contextual_tokens]
    weights = theory.tf_idf(probs)
    distinct = classes.kinds_of(classes.contextual_tokens) == "distinct"
    lifts, orders = [], []
    for n in range(classes.num_classes):
        present = probs[n] > 0
        lift = attention[-1, n, present] / probs[n, present]
        lifts.append(lift[distinct[present]].min() - lift[~distinct[present]].max())
        by_prob = attention[-1, n, present & distinct][np.argsort(probs[n, present & distinct])]
        orders.append(np.diff(by_prob))
    check.positive("attention per probability: least distinct minus most common token", np.array(lifts), role="assumed")
    check.positive("attention rises with P(l|n) among distinct tokens", np.concatenate(orders), role="assumed")
    likeness = np.array(
        [[_cosine(attention[s, n], weights[n]) for n in range(len(probs))] for s in range(len(attention))]
    )
    raw = np.array([_cosine(probs[n], weights[n]) for n in range(len(probs))])
    check.positive("likeness (cosine) to TF-IDF gained in training", likeness[-1] - raw)
    check.equal("attention equals TF-IDF: 1 - cosine", 1.0, likeness[-1], tolerance=0.02, role="beyond")
    check.equal(
        "attention of the most frequent distinct token against its TF-IDF weight",
        weights.max(axis=1),
        attention[-1].max(axis=1),
        tolerance=0.1,
        role="beyond",
    )
    check.curve = Curve(
        recorded["step"].values.astype(float),
        {
            "attention and TF-IDF": likeness.mean(axis=1),
            "frequencies and TF-IDF": np.full(len(likeness), raw.mean()),
        },
        "updates",
        "cosine",
        log_x=False,
    )


def _cosine(a: FloatArray, b: FloatArray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@claim(
    "The query is $x_{T-1}$ and the next token $x_T$, counted from zero as in Table 1: $x_T$ and $x_{T+1}$ of the "
    "main text.",
    where="Table 1, with Section 3",
    category="holds",
    setting=lambda: Setting(syn_small(), lr_y=1.0, lr_z=1.0),
)
def table_1(check: Check) -> None:
    """Contextual tokens before the query in sampled sequences of T = 128, and the position of the query."""
    classes = check.setting.classes
    length = 128
    sequences, owner = sample_sequences(classes, num=200, seq_len=length, seed=check.seeds(1)[0])
    is_query = sequences == classes.query[owner][:, None]
    index = length - 1.0 - is_query[:, ::-1].argmax(axis=1)  # of its last occurrence, from zero
    check.equal("index of the query, Table 1", length - 1.0, index, tolerance=1e-9)
    check.equal("position of the query, main text", float(length), index + 1, tolerance=1e-9)
