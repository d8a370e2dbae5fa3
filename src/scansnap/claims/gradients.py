"""Lemmas 1 to 4: the gradient, its limit for long sequences, and the two decoder gradients.

Lemma 1 is compared with derivatives of the forward pass as it is written down, position by position, without any
formula for them.  A forward pass made of exp, log, sqrt and sums is a function of complex numbers, and
f(x + ih) = f(x) + ih f'(x) + ...: the imaginary part of f(x + ih) is h f'(x), and with h = 1e-100 nothing else is left,
and nothing cancels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scansnap import theory
from scansnap.claims.check import FORM_ROLES, Check, Curve, Setting
from scansnap.claims.claim import claim
from scansnap.claims.population import FloatArray, PopulationState, trajectory
from scansnap.data.sampling import sample_counts, sample_sequences
from scansnap.data.synthetic import single_common, syn_medium
from scansnap.dynamics.kernel_engine import first_gradient
from scansnap.dynamics.options import TrainOptions
from scansnap.dynamics.yz_tasks import YZTraining
from scansnap.runtime.errors import InputError

H = 1e-100
"""The imaginary step."""

MAX_DENSE_TOKENS = 2000
"""The largest vocabulary for which a check holds whole M x M matrices."""

Numbers = NDArray[Any]  # real or complex


def plain_gradients(
    sequences: NDArray[np.int64], next_token: NDArray[np.int64], decoder: FloatArray, attention_logits: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """dJ/dY and dJ/dZ (M x M) of the mean log-likelihood J of these sequences, whose last token is the query.

    Only logits of pairs (query, token) of a sequence move it.  The outputs are linear in Y: what the derivative by an
    output is to the output, the derivative by a row of Y is to the direction's entry in that row.
    """
    direction = plain_directions(sequences, attention_logits)
    outputs = direction @ decoder
    slopes = np.zeros(outputs.shape)
    for j in range(outputs.shape[1]):
        moved = outputs.astype(complex)
        moved[:, j] += 1j * H
        slopes[:, j] = log_likelihoods(moved, next_token).imag / H
    by_logit = np.zeros_like(attention_logits)
    pairs = np.stack([np.repeat(sequences[:, -1], sequences.shape[1] - 1), sequences[:, :-1].ravel()])
    for m, token in np.unique(pairs, axis=1).T:
        logits = attention_logits.astype(complex)
        logits[m, token] += 1j * H
        own = sequences[:, -1] == m
        there = plain_directions(sequences[own], logits) @ decoder
        by_logit[m, token] = log_likelihoods(there, next_token[own]).imag.sum() / H
    return direction.T @ slopes / len(sequences), by_logit / len(sequences)


def plain_directions(sequences: NDArray[np.int64], attention_logits: Numbers) -> Numbers:
    """The attended tokens of each sequence, normalized (Eq. 2)."""
    scores = np.exp(attention_logits[sequences[:, -1:], sequences[:, :-1]])
    attended = np.zeros((len(sequences), len(attention_logits)), scores.dtype)
    np.add.at(attended, (np.arange(len(sequences))[:, None], sequences[:, :-1]), scores)
    attended /= scores.sum(axis=1, keepdims=True)
    return attended / np.sqrt((attended**2).sum(axis=1, keepdims=True))


def log_likelihoods(outputs: Numbers, next_token: NDArray[np.int64]) -> Numbers:
    """The log-likelihood of each next token."""
    own = outputs[np.arange(len(outputs)), next_token]
    return own - np.log(np.exp(outputs).sum(axis=1))


@claim(
    where="Lemma 1, Eqs. 3 and 4",
    category="holds",
    setting=lambda: Setting(syn_medium(num_query=3), lr_y=1.0, lr_z=1.0),
    wrong_factor=1 + 1e-9,
    needs=("no positions",),
)
def lemma_1(check: Check) -> None:
    """The gradients of $Y$ and $Z$ have the closed form of Eq. 3, and rows of $Y$ and $Z$ keep their sums.

    Check: Closed form against derivatives of the plain forward pass: random Y and Z, 64 sequences of 40 tokens,
    float64.
    """
    classes = check.setting.classes
    size = classes.vocab_size
    if size > MAX_DENSE_TOKENS:
        raise InputError(
            f"lemma_1 compares dense {size} x {size} matrices: give classes of at most {MAX_DENSE_TOKENS} tokens."
        )
    rng = check.rng()
    y, z = rng.normal(size=(size, size)), rng.normal(size=(size, size))
    options = TrainOptions(
        lr_y=1.0, lr_z=1.0, steps=1, batch_size=64, seq_len=40, seeds=check.seed, init=(y, z), dtype="float64"
    )
    work = YZTraining.checked(classes, options)
    start = work.start(options.runs)
    dy, dz = first_gradient(work, start)
    sequences, owner = sample_sequences(classes, num=64, seq_len=40, seed=check.seed)
    plain_y, plain_z = plain_gradients(sequences, classes.next_token[owner], y, z)
    check.equal("dY/dt against the plain forward pass", dy, plain_y[start.layout.rows], tolerance=1e-12)
    wanted = plain_z[np.ix_(classes.queries, start.layout.rows)]
    check.equal("dZ/dt against the plain forward pass", dz, wanted, tolerance=1e-12)
    for name, rate in (("dY/dt", dy), ("dZ/dt", dz)):
        gains, losses = (np.maximum(sign * rate, 0.0).sum(axis=1) for sign in (1, -1))
        check.equal(f"sum of the gains in a row of {name} against that of the losses", gains, losses, tolerance=1e-12)


@claim(where="Lemma 2, Eq. 6", category="holds under its assumptions", wrong_factor=1.3, needs=("no positions",))
def lemma_2(check: Check) -> None:
    r"""In long sequences attention approaches $c_n$: $X^T b_T \to c_n$ as $T \to \infty$.

    Conditions: $T \to \infty$

    Check: |X^T b - c_n| for T from 2^5 to 2^14, 300 sequences each: an error that falls like T^(-1/2).
    """
    classes = check.setting.classes
    rng = check.rng()
    boost = np.exp(rng.normal(size=classes.vocab_size))
    limit = classes.probs * boost
    limit /= limit.sum(axis=1, keepdims=True)
    lengths = 2 ** np.arange(5, 15)
    errors = []
    for i, length in enumerate(lengths):
        counts, owner = sample_counts(classes, num=300, seq_len=int(length), seed=check.seeds(len(lengths))[i])
        weighted = counts * boost
        attention = weighted / weighted.sum(axis=1, keepdims=True)
        errors.append(np.mean(np.linalg.norm(attention - limit[owner], axis=1) / np.linalg.norm(limit[owner], axis=1)))
    slope = np.polyfit(np.log(lengths), np.log(errors), 1)[0]
    check.equal("exponent of the error in T", -0.5, slope, tolerance=0.1)
    at_128 = errors[int(np.flatnonzero(lengths == 128)[0])]
    check.at_most("relative error at the published T = 128", at_128, 0.05, role="beyond")
    falling = errors[0] * (lengths / lengths[0]) ** -0.5
    check.curve = Curve(
        lengths.astype(float),
        {"measured": np.array(errors), "T^(-1/2)": falling},
        "T",
        "relative error of attention",
        log_y=True,
    )


@claim(
    where="Lemma 3, Eqs. 8 and 26",
    category="holds under its assumptions",
    wrong_factor=1.001,
    assumes=("independent_classes",),
)
def lemma_3(check: Check) -> None:
    """The modified gradient moves the logits $w_n = F^T Y$ of class $n$ alone; with weak overlaps it is a small change.

    Conditions: attention fixed, $F$ of full rank

    Check: F^T dY/dt against P(n) (e_n - alpha_n) in row n, at a decoder trained for 200 steps.
    """
    classes = check.setting.classes
    (state,), _ = trajectory(classes, times=np.array([200.0]), lr_y=check.setting.lr_y, lr_z=0.0)
    f = state.direction
    alone = classes.weights[:, None] * state.measured.residual
    check.equal("F^T dY/dt, modified gradient", alone, f @ state.velocity(modified=True)[0], tolerance=1e-9)
    check.equal("F^T dY/dt, true SGD", alone, f @ state.velocity()[0], tolerance=0.05, role="beyond")


@claim(
    where="Lemma 3, last sentence of the proof, with Remark 1",
    category="error",
    wrong_factor=1.3,
    needs=("several classes",),
    assumes=("independent_classes",),
)
def lemma_3_rate(check: Check) -> None:
    r"""The additional term $-F E' e_n$ of the modified gradient effectively reduces the learning rate.

    Conditions: $F$ of full rank; equal overlaps, as the sentence asks for, or any

    Correction: it is the original dynamics for which Remark 1 finds a smaller rate, so that the term would raise it; in
    truth the own logit moves at the rate $\eta_Y$ with the term and without, the other classes' no longer move, and the
    step of $Y$ is longer: $\lvert f_n - F E' e_n\rvert^2 = 1 - E'_{nn} \ge 1$

    Check: Length of the step and the rates of the logits, for the setting's classes and for equal overlaps up to 0.99.

    f_n - F E' e_n = F (I - E') e_n, and (I - E') (I + E) (I - E') = I - E': its squared length is 1 - E'_nn, at least
    one by Lemma 16.  Its product with f_n is ((I + E)(I - E'))_nn = 1, as without the term: |f_n|^2 = 1.
    """
    f = theory.directions(check.setting.probs)
    e = theory.overlaps(f)
    inverse = theory.inverse_overlaps(e)
    step = f - inverse @ f  # rows f_n - F E' e_n
    length = np.linalg.norm(step, axis=1)
    equal = [
        np.linalg.norm(rows - theory.inverse_overlaps(theory.overlaps(rows)) @ rows, axis=1)[0]
        for rows in (_equal_overlaps(len(f), overlap) for overlap in np.linspace(0.01, 0.99, 50))
    ]
    check.at_most("length of a step with the term, equal overlaps of 0.01 to 0.99", equal, 1.0)
    check.at_least("length of a step with the term, the setting", length, 1.0 - 1e-9, role="corrected")
    check.equal(
        "length squared, 1 - E'_nn, the setting", 1 - np.diag(inverse), length**2, tolerance=1e-9, role="corrected"
    )
    check.equal("rate of the own logit with the term", 1.0, (f * step).sum(axis=1), tolerance=1e-9, role="corrected")


def _equal_overlaps(count: int, overlap: float) -> FloatArray:
    """Unit vectors of which any two have this product: one shared entry and one of their own."""
    return np.hstack([np.sqrt(1 - overlap) * np.eye(count), np.full((count, 1), np.sqrt(overlap))])


@claim(where="Lemma 4, Eq. 10", category="error", wrong_factor=1.001)
def lemma_4(check: Check) -> None:
    r"""Attention logits move by Eq. 10, the sum over the classes of a query without $P(n)$.

    Conditions: $T \to \infty$; steps of batch 1

    Correction: each class's term carries $P(n)$, the chance of drawing it: with $P(n) = 1/K$, Eq. 10 is $K$ times too
    fast for the time of $\gamma(t)$, which is made of $h(t/K)$ and so counts steps of batch 1

    Check: Eq. 10 against the engine's expected batch-1 step, at the decoder of Theorem 5 for attention fixed at zero.
    """
    state = fixed_attention_state(check.setting, per_class=30.0)
    classes, f = state.classes, state.direction
    _, beta = theory.backpropagated_gradient(theory.overlaps(f), vocab_size=classes.vocab_size)
    gamma = float(theory.speed(30.0, vocab_size=classes.vocab_size, num_classes=1, lr_y=check.setting.lr_y))
    measured = state.velocity()[1][np.argsort(classes.queries)]
    more: dict[str, Any] = {"query": classes.query, "speed": gamma, "lr_z": 1.0, "weights": classes.weights}
    for form, role in FORM_ROLES:
        predicted = theory.logits_velocity(f, beta, **more, form=form)
        check.equal(f"dz/dt per step, {form} form", predicted, measured, tolerance=1e-6, role=role)


def fixed_attention_state(setting: Setting, *, per_class: float) -> PopulationState:
    """Y of Theorem 5 after `per_class` updates of every class, with z = 0."""
    classes = setting.classes
    f = theory.directions(setting.probs)
    w = theory.decoder_logits(
        per_class, next_token=classes.next_token, vocab_size=classes.vocab_size, lr_y=setting.lr_y
    )
    return PopulationState(classes, theory.decoder(f, w), np.zeros((len(classes.queries), f.shape[1])))


@claim(where="Appendix D.1, with Eqs. 26 to 30", category="holds")
def definition_e_prime(check: Check) -> None:
    """$E' = I - (I + E)^{-1}$, in the modified gradient $f_n - F E' e_n$.

    Conditions: attention fixed; the definition in D.1 has the other sign, unless the text we have lost it

    Check: F^T (f_n - F E' e_n) must be e_n (Eqs. 27 to 30).
    """
    f = theory.directions(check.setting.probs)
    e = theory.overlaps(f)
    product = f @ (f.T - f.T @ theory.inverse_overlaps(e))
    check.equal("F^T (f_n - F E' e_n)", product, np.eye(len(e)), tolerance=1e-9)


@claim(
    where="Theorem 1, Eq. 88",
    category="misprint",
    # in a vocabulary of 80 terms of order 1/M can be seen
    setting=lambda: Setting(single_common(num_classes=3, num_distinct=14, vocab_size=80)),
    wrong_factor=1.001,
)
def equation_88(check: Check) -> None:
    r"""Backpropagated coefficients $\beta$ have the term $q_0 (1 + \theta_{n'})$ with a plus sign.

    Conditions: those of Theorem 1

    Correction: $q_0 (1 + \theta_{n'})$ enters $\beta$ with a minus sign, the sum over $k$ as printed; as $q_0 < 0$,
    $\beta_{nn'}$ tends to $+1/M$ and not to $-1/M$ as overlaps vanish

    Check: beta by Eq. 88 against the coefficients read off g_n = Y (e_n - alpha_n).
    """
    state = fixed_attention_state(check.setting, per_class=30.0)
    e = theory.overlaps(state.direction)
    for form, role in FORM_ROLES:
        _, beta = theory.backpropagated_gradient(e, vocab_size=state.classes.vocab_size, form=form)
        check.equal(f"beta, {form} form", beta, state.measured.beta, tolerance=1e-6, role=role)
