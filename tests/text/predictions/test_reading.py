"""What a text drives while attention is even, against autograd of the dense model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import scansnap as ss
from scansnap.text.predictions.methods import FirstDrive, Settled
from scansnap.text.predictions.reading import CountReading, WindowReading

VOCAB, WINDOW = 7, 6


@pytest.fixture
def windows() -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCAB, (9, WINDOW + 1))  # tokens often come twice


def dense_gradients(windows: np.ndarray, y: torch.Tensor, alpha: torch.Tensor | None = None):
    """Expected gradients of the log-likelihood by Y and Z at Z = 0, occurrence by occurrence, by autograd.

    With `alpha` the prediction is held there: the objective is then f Y (e_n - alpha).
    """
    y = y.clone().requires_grad_()
    z = torch.zeros(VOCAB, VOCAB, dtype=torch.float64, requires_grad=True)
    total, count = torch.zeros((), dtype=torch.float64), 0
    for row in windows.tolist():
        for t in range(1, WINDOW):
            counts = torch.bincount(torch.tensor(row[:t]), minlength=VOCAB).double()
            c = counts * z[row[t]].exp()
            c = c / c.sum()
            logits = c / c.norm() @ y
            held = logits.log_softmax(0)[row[t + 1]] if alpha is None else logits[row[t + 1]] - logits @ alpha
            total, count = total + held, count + 1
    (total / count).backward()
    return y.grad, z.grad


def reading(windows: np.ndarray, queries: list[int]) -> WindowReading:
    return WindowReading(windows, vocab_size=VOCAB, queries=np.array(queries), device="cpu")


def test_drives_are_the_gradients_of_the_dense_model(windows) -> None:
    rng = np.random.default_rng(1)
    y, alpha = torch.from_numpy(rng.normal(size=(VOCAB, VOCAB))), torch.from_numpy(rng.dirichlet(np.ones(VOCAB)))
    ours = reading(windows, [5, 2])
    by_y, by_z = dense_gradients(windows, y, alpha)
    c = ours.decoder_drive().double()
    np.testing.assert_allclose(c - torch.outer(c.sum(1), alpha), by_y, atol=1e-6)
    drive = ours.attention_drive(y.float(), alpha.float())
    np.testing.assert_allclose(drive, by_z[[5, 2]], atol=1e-6)
    assert by_z.abs().max() > 0.01


def test_first_drive_is_the_limit_of_one_expected_step(windows) -> None:
    """With a small eta_Y the gradient of Z after one expected step of Y is eta_Y times the first drive."""
    queries = list(range(VOCAB))
    rate = 1e-4
    by_y, _ = dense_gradients(windows, torch.zeros(VOCAB, VOCAB, dtype=torch.float64))
    _, by_z = dense_gradients(windows, rate * by_y)
    np.testing.assert_allclose(FirstDrive().gains(reading(windows, queries)), by_z / rate, atol=2e-6)


def test_settled_is_the_first_drive_for_no_time(windows) -> None:
    ours = reading(windows, [0, 1])
    np.testing.assert_allclose(Settled(0.0, 0.0).gains(ours), FirstDrive().gains(ours), atol=1e-7)
    assert not np.allclose(Settled(1000.0, 0.5).gains(ours), FirstDrive().gains(ours), atol=1e-4)


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
        found = [(i, n) for ids, following in source._parts() for i, n in
                 zip(ids[:, 1:].flatten().tolist(), following[:, 1:].flatten().tolist(), strict=True)]  # fmt: skip
        return sorted(found)

    assert pairs(shuffled) == pairs(ours)  # what follows a query stays, over all its occurrences
    assert not np.allclose(shuffled.decoder_drive(), ours.decoder_drive())


def test_counts_give_the_drives_if_windows_say_no_more(tmp_path, monkeypatch) -> None:
    """A text of distinct tokens, in windows of one contextual token: |k| = 1 and f . g = g, as counts suppose."""
    monkeypatch.setenv("SCANSNAP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "text.txt").write_text(" ".join("abcd"[i] for i in np.random.default_rng(0).integers(0, 4, 400)))
    corpus = ss.read_corpus(tmp_path / "text.txt")
    counts = ss.count_corpus(corpus, output=tmp_path / "counts", window=2)
    ids = np.asarray(corpus.train, np.int64)
    windows = np.stack([ids[:-2], ids[1:-1], ids[2:]], 1)  # every occurrence with its one contextual token
    size = corpus.vocab_size
    exact = WindowReading(windows, vocab_size=size, queries=np.array([0, 1]), device="cpu")
    counted = CountReading(counts, queries=np.array([0, 1]), device="cpu")
    # counts have one occurrence more, the first token, which has no contextual token
    ratio = (len(ids) - 2) / (len(ids) - 1)
    np.testing.assert_allclose(counted.decoder_drive(), ratio * exact.decoder_drive(), atol=1e-7)
    y, alpha = torch.randn(size, size), torch.full((size,), 1 / size)
    np.testing.assert_allclose(exact.attention_drive(y, alpha), torch.zeros(2, size), atol=1e-6)  # no competition
    np.testing.assert_array_equal(counted.pair_counts(), exact.pair_counts())
