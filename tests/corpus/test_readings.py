"""What a text drives while attention is even, against autograd of the dense model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.corpus.predictors import Population, Settled, TrainingPlan, advance
from scansnap.corpus.readings import CountReading, WindowReading

pytestmark = pytest.mark.rounding

VOCAB, WINDOW = 7, 6
PLAN = TrainingPlan(lr_y=1.0, lr_z=1.0, steps=1)
FIRST_DRIVE = Settled(time=0.0, prior=0.0)


@pytest.fixture
def windows() -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCAB, (9, WINDOW + 1))  # tokens often come twice


def dense_gradients(
    windows: np.ndarray, y: torch.Tensor, alpha: torch.Tensor | None = None, z: torch.Tensor | None = None
):
    """Expected gradients of the log-likelihood by Y and Z, at Z = 0 if not stated, by autograd.

    With `alpha` the prediction is held there: the objective is then f Y (e_n - alpha).
    """
    y = y.clone().requires_grad_()
    z = torch.zeros(VOCAB, VOCAB, dtype=torch.float64) if z is None else z.clone()
    z.requires_grad_()
    occurrences = [(row[:t], row[t], row[t + 1]) for row in windows.tolist() for t in range(1, WINDOW)]
    k = torch.stack([torch.bincount(torch.tensor(tokens), minlength=VOCAB) for tokens, _, _ in occurrences]).double()
    queries, following = (torch.tensor([occurrence[i] for occurrence in occurrences]) for i in (1, 2))
    c = k * z[queries].exp()
    c = c / c.sum(1, keepdim=True)
    logits = c / c.norm(dim=1, keepdim=True) @ y
    target = logits.log_softmax(1) if alpha is None else logits - (logits @ alpha)[:, None]
    target[torch.arange(len(k)), following].mean().backward()
    return y.grad, z.grad


def reading(windows: np.ndarray, queries: list[int], plan: TrainingPlan = PLAN) -> WindowReading:
    return WindowReading(windows, vocab_size=VOCAB, queries=np.array(queries), device="cpu", plan=plan)


@pytest.mark.parametrize("is_even", [True, False])
def test_drives_are_the_gradients_of_the_dense_model(windows, is_even: bool) -> None:
    """At even attention, and at any attention of the queries that are asked about, where that of others is even."""
    rng = np.random.default_rng(2)
    y, alpha = torch.from_numpy(rng.normal(size=(VOCAB, VOCAB))), torch.from_numpy(rng.dirichlet(np.ones(VOCAB)))
    z = torch.zeros(VOCAB, VOCAB, dtype=torch.float64)
    logits = None
    if not is_even:
        z[[5, 2]] = torch.from_numpy(rng.normal(size=(2, VOCAB)) * 3 + 40)  # a constant changes nothing
        logits = z[[5, 2]].float()
    ours = reading(windows, [5, 2])
    by_y, by_z = dense_gradients(windows, y, alpha, z)
    c = ours.decoder_drive(logits).double()
    np.testing.assert_allclose(c - torch.outer(c.sum(1), alpha), by_y, atol=1e-6)
    np.testing.assert_allclose(ours.attention_drive(y.float(), alpha.float(), logits), by_z[[5, 2]], atol=1e-6)
    assert by_z.abs().max() > 0.01
    change = float((c - ours.decoder_drive(torch.zeros(2, VOCAB))).abs().max())
    assert change < 1e-7 if is_even else change > 1e-3


def test_mean_squares_are_those_of_the_occurrences(windows) -> None:
    squares = np.zeros(VOCAB)
    for row in windows:
        for t in range(1, WINDOW):
            k = np.bincount(row[:t], minlength=VOCAB)
            squares += k**2 / (k @ k)
    ours = reading(windows, [0]).mean_squares()
    np.testing.assert_allclose(ours, squares / (len(windows) * (WINDOW - 1)), rtol=1e-5)


def test_first_drive_is_the_limit_of_one_expected_step(windows) -> None:
    """With a small eta_Y the gradient of Z after one expected step of Y is eta_Y times the first drive."""
    queries = list(range(VOCAB))
    rate = 1e-4
    by_y, _ = dense_gradients(windows, torch.zeros(VOCAB, VOCAB, dtype=torch.float64))
    _, by_z = dense_gradients(windows, rate * by_y)
    np.testing.assert_allclose(FIRST_DRIVE.gains(reading(windows, queries)), by_z / rate, atol=2e-6)


def test_settled_solves_the_implicit_step(windows) -> None:
    """tau Y = tau (C - s alpha^T - s alpha^T (tau Y)): each entry by itself, with its curvature s_l alpha_n."""
    ours, tau = reading(windows, [0, 1]), 40.0
    alpha = 0.6 * ours.next_shares + 0.4 / VOCAB
    c = ours.decoder_drive().double()
    y = torch.zeros_like(c)
    for _ in range(2000):
        y += 0.02 * (c - torch.outer(c.sum(1), alpha.double()) * (1 + tau * y) - y)
    expected = ours.attention_drive(y.float(), alpha)
    np.testing.assert_allclose(Settled(tau, 0.6).gains(ours), expected, rtol=1e-4, atol=1e-9)


def test_a_long_step_takes_y_where_short_ones_do() -> None:
    """The flow of the mean field in 20,000 Euler steps, in the form of its equation, against 40 implicit ones."""
    windows = np.random.default_rng(4).integers(0, VOCAB, (300, WINDOW + 1))
    windows[:, 3] = windows[:, 1]  # something to learn
    ours, end = reading(windows, [0]), 60.0
    c, squares = ours.decoder_drive().double(), ours.mean_squares().double()
    s = c.sum(1)
    a = squares / s - s
    expected = torch.zeros_like(c)
    for _ in range(20_000):
        alpha = (s @ expected + a[:, None] * expected).softmax(1)
        expected += end / 20_000 * (c - s[:, None] * alpha)
    y = torch.zeros_like(c)
    for step in np.diff([0.0, *np.geomspace(0.01, end, 200)]):
        bias = advance(y, c.clone(), squares, float(step))
    np.testing.assert_allclose(bias, s @ y)
    np.testing.assert_allclose(y, expected, atol=0.02 * float(expected.abs().max()))
    assert float(expected.abs().max()) > 0.5


def test_the_first_moments_of_population_are_the_first_drive(windows) -> None:
    """In a short time Y = tau (C - s/M) and z = tau^2/2 times the first drive and eta_Z/eta_Y."""
    plan = TrainingPlan(lr_y=1e-3, lr_z=1e-4, steps=10)
    gains = Population(times=60).gains(reading(windows, [0, 1, 2], plan))
    first = FIRST_DRIVE.gains(reading(windows, [0, 1, 2]))
    np.testing.assert_allclose(gains, 0.1 * plan.time**2 / 2 * first, rtol=0.02, atol=1e-3 * float(gains.abs().max()))


@pytest.mark.parametrize(
    "plan", [TrainingPlan(1e12, 1e12, 10**12), TrainingPlan(1e-12, 1e12, 1), TrainingPlan(1e12, 1e-12, 1)]
)
def test_population_stays_finite_at_any_rate(windows, plan) -> None:
    assert torch.isfinite(Population(times=4).gains(reading(windows, [0, 1], plan))).all()


class ReadOnce(WindowReading):
    """What Y learns from does not follow attention."""

    def decoder_drive(self, logits: torch.Tensor | None = None) -> torch.Tensor:
        return super().decoder_drive()

    def mean_squares(self, logits: torch.Tensor | None = None) -> torch.Tensor:
        return super().mean_squares()


@pytest.mark.parametrize("lr_z", [0.1, 100.0])
def test_population_follows_the_expected_gradients_of_the_dense_model(lr_z) -> None:
    """Y and Z in 150 Euler steps by autograd, in a text where a token says the one after the next.

    At the small rate attention stays even, at the large one logits grow to 3.  Contexts are few, so that softmax(b) is
    not each occurrence's own prediction: correlations of 0.99 and 0.96, and logits 1.05 and 1.1 times as large.
    """
    rng = np.random.default_rng(5)
    windows = rng.integers(0, VOCAB, (60, WINDOW + 1))
    windows[:, 4] = np.where(rng.random(60) < 0.7, windows[:, 2], windows[:, 4])
    plan, steps = TrainingPlan(lr_y=1.0, lr_z=lr_z, steps=40), 150
    y, z = (torch.zeros(VOCAB, VOCAB, dtype=torch.float64) for _ in range(2))
    for _ in range(steps):
        by_y, by_z = dense_gradients(windows, y, None, z)
        y += plan.time / steps * by_y
        z += plan.time / steps / plan.ratio * by_z

    def gains(kind: type[WindowReading]) -> torch.Tensor:
        source = kind(windows, vocab_size=VOCAB, queries=np.arange(VOCAB), device="cpu", plan=plan)
        return Population().gains(source).double()

    def agreement(values: torch.Tensor) -> float:
        return float(np.corrcoef(values.flatten(), z.flatten())[0, 1])

    ours = gains(WindowReading)
    assert agreement(ours) > 0.95
    assert float(ours.std() / z.std()) == pytest.approx(1.0, abs=0.2)
    if lr_z > 1:
        assert float(z.abs().max()) > 2
        assert agreement(gains(ReadOnce)) < agreement(ours) - 0.005


def test_pairs_are_counted_and_shuffling_moves_next_tokens_alone(windows) -> None:
    ours = reading(windows, [3])
    expected = np.zeros(VOCAB, np.int64)
    for row in windows:
        for t in range(1, WINDOW):
            if row[t] == 3:
                expected += np.bincount(row[:t], minlength=VOCAB)
    np.testing.assert_array_equal(ours.pair_counts()[0], expected)
    shuffled = ours.shuffled(0)
    np.testing.assert_array_equal(shuffled.pair_counts(), ours.pair_counts())

    def pairs(source: WindowReading) -> list[tuple[int, int]]:
        found = [
            (i, n)
            for ids, following in source._parts()
            for i, n in zip(ids[:, 1:].flatten().tolist(), following[:, 1:].flatten().tolist(), strict=True)
        ]
        return sorted(found)

    assert pairs(shuffled) == pairs(ours)  # what follows a query stays, over all its occurrences
    assert not np.allclose(shuffled.decoder_drive(), ours.decoder_drive())


def test_counts_give_the_drives_if_windows_say_no_more(tmp_path) -> None:
    """A text of distinct tokens, in windows of one contextual token: |k| = 1 and f . g = g, as counts suppose."""
    (tmp_path / "text.txt").write_text(" ".join("abcd"[i] for i in np.random.default_rng(0).integers(0, 4, 400)))
    corpus = ss.read_corpus(tmp_path / "text.txt")
    counts = ss.count_corpus(corpus, output=tmp_path / "counts", window=2, split="train")
    ids = np.asarray(corpus.train, np.int64)
    windows = np.stack([ids[:-2], ids[1:-1], ids[2:]], 1)  # every occurrence with its one contextual token
    size = corpus.vocab_size
    exact = WindowReading(windows, vocab_size=size, queries=np.array([0, 1]), device="cpu", plan=PLAN)
    counted = CountReading(counts, queries=np.array([0, 1]), device="cpu", plan=PLAN)
    # counts have one occurrence more, the first token, which has no contextual token
    ratio = (len(ids) - 2) / (len(ids) - 1)
    np.testing.assert_allclose(counted.decoder_drive(), ratio * exact.decoder_drive(), atol=1e-7)
    y, alpha = torch.randn(size, size), torch.full((size,), 1 / size)
    np.testing.assert_allclose(exact.attention_drive(y, alpha), torch.zeros(2, size), atol=1e-6)  # no competition
    np.testing.assert_array_equal(counted.pair_counts(), exact.pair_counts())
    assert counted.pair_counts().dtype == exact.pair_counts().dtype == torch.int64  # exact beyond 2^24 too
    np.testing.assert_allclose(counted.mean_squares(), ratio * exact.mean_squares(), atol=1e-7)
    # one contextual token has all attention whatever its logit, and |k| of counts is right if logits are equal
    logits = torch.tensor([[3.0], [-2.0]]).expand(2, size)
    np.testing.assert_allclose(counted.decoder_drive(logits), ratio * exact.decoder_drive(logits), atol=1e-7)
