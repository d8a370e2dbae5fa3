"""Counts of a text, its sequence classes and its distinct words, against a recount by the definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

import scansnap as ss
from scansnap.text import counts
from scansnap.text.corpus import Corpus
from scansnap.text.counts import TextCounts
from scansnap.text.evidence import chance_distinctness
from scansnap.text.tokenizers import WordTokenizer

Table = Counter[tuple[int, ...]]


def slow_tables(texts: Sequence[Sequence[int]], window: int) -> dict[str, Table]:
    """c(m, n), c(l, m, n) and c(l, m) by the definition."""
    tables: dict[str, Table] = {name: Counter() for name in ("pairs", "triples", "contexts")}
    for ids in texts:
        for t in range(len(ids) - 1):
            query, following = ids[t], ids[t + 1]
            tables["pairs"][query, following] += 1
            for j in range(t - window + 1, t):
                if j >= 0:
                    tables["triples"][query, following, ids[j]] += 1
                    tables["contexts"][query, ids[j]] += 1
    return tables


def corpus_of(vocab_size: int, **splits: Sequence[int]) -> Corpus:
    """A corpus of given ids."""
    words = ["<eos>", "<unk>", *(f"w{i}" for i in range(2, vocab_size))]
    arrays = {name: np.array(ids, np.int32) for name, ids in splits.items()}
    return Corpus("made", WordTokenizer(words), arrays, "made")


def zipf_ids(tokens: int, vocab_size: int, seed: int = 0) -> np.ndarray:
    """Words that get rarer, in topics of a hundred tokens."""
    rng = np.random.default_rng(seed)
    draws = (vocab_size ** rng.random(tokens) - 1).astype(np.int64)
    topic = np.repeat(rng.integers(0, 5, -(-tokens // 100)), 100)[:tokens]
    return ((draws * (1 + topic * (draws > 10))) % vocab_size).astype(np.int32)


@pytest.mark.parametrize("window", [2, 3, 35])
@pytest.mark.parametrize("part_events", [1, 100, 2**22])
def test_every_count_is_that_of_the_definition(monkeypatch: pytest.MonkeyPatch, window: int, part_events: int) -> None:
    """Two splits, one of them shorter than a window, in many parts and in one; the last token has no next one."""
    monkeypatch.setattr(counts, "PART_EVENTS", part_events)
    splits = {"train": zipf_ids(3000, 40).tolist(), "valid": zipf_ids(20, 40, seed=1).tolist()}
    for split, texts in (("all", list(splits.values())), ("valid", [splits["valid"]])):
        text, slow = TextCounts(corpus_of(40, **splits), window=window, split=split), slow_tables(texts, window)
        assert text.num_tokens == sum(map(len, texts))
        found: dict[str, Table] = {name: Counter() for name in slow}
        queries = np.flatnonzero(text.query_counts).tolist()
        for query in text.of([*queries[::2], *queries[1::2]]):  # in any order
            m, contexts = query.query, query.contexts()
            found["pairs"] |= {(m, n): c for n, c in zip(query.next_tokens, query.next_counts, strict=True)}
            rows = zip(query.next_tokens[contexts.place], contexts.token, contexts.count, strict=True)
            found["triples"] |= {(m, n, token): c for n, token, c in rows}
            found["contexts"] |= {(m, i): contexts.token_counts[i] for i in np.flatnonzero(contexts.token_counts)}
            some = query.contexts([len(query.next_tokens) - 1])  # of the last next token alone
            last = contexts.place == len(query.next_tokens) - 1
            np.testing.assert_array_equal(some.token, contexts.token[last])
            np.testing.assert_array_equal(some.count, contexts.count[last])
            assert query.num_occurrences == text.query_counts[m]
        assert found == slow


def test_large_vocabularies_have_wide_keys() -> None:
    """The key of a next token and a contextual token may exceed 32 bits."""
    ids = [2, 9, *range(100, 22_000), *(n for i in range(50_000, 94_000) for n in (9, i))]
    text, slow = TextCounts(corpus_of(100_000, train=ids), window=3), slow_tables([ids], 3)
    (query,) = text.of([9])
    contexts = query.contexts()
    assert len(query.next_tokens) * 100_001 > 2**32
    rows = zip(query.next_tokens[contexts.place], contexts.token, contexts.count, strict=True)
    assert {(9, n, token): c for n, token, c in rows} == {k: c for k, c in slow["triples"].items() if k[0] == 9}


# --- classes ----------------------------------------------------------------------------------------------------------


def test_classes_are_the_shares_of_the_counts(example: Corpus) -> None:
    classes = ss.classes_from_text(example, queries=["the", "a"], next_tokens=3, tokens=12, window=20, split="train")
    slow = slow_tables([example.train.tolist()], 20)
    id_of = {word: i for i, word in enumerate(example.words(range(example.vocab_size)))}
    pairs = {
        (query, n)
        for query in ("the", "a")
        for _, n in sorted((-c, n) for (m, n), c in slow["pairs"].items() if m == id_of[query])[:3]
    }
    words = [
        (classes.name(int(m)), id_of[classes.name(int(n))])
        for m, n in zip(classes.query, classes.next_token, strict=True)
    ]
    assert set(words) == pairs
    totals = np.array([slow["pairs"][id_of[m], n] for m, n in words])
    np.testing.assert_allclose(classes.weights, totals / totals.sum())
    assert len(classes.contextual_tokens) == 12
    before = Counter(dict.fromkeys(range(example.vocab_size), 0))
    for m, n in pairs:
        before.update({token: slow["triples"][id_of[m], n, token] for token in before})
    most = [token for token, _ in sorted(before.items(), key=lambda item: (-item[1], item[0]))[:12]]
    assert {id_of[classes.name(int(token))] for token in classes.contextual_tokens} == set(most)
    for index, (m, n) in enumerate(words):
        kept = [id_of[classes.name(int(token))] for token in classes.support(index)]
        rows = np.array([slow["triples"][id_of[m], n, token] for token in kept])
        np.testing.assert_allclose(classes.support_probs(index), rows / rows.sum())
    of_text = sum(slow["pairs"].values())
    assert classes.kept.occurrences == pytest.approx(totals.sum() / of_text)
    assert classes.kept.contexts == pytest.approx(sum(before[token] for token in most) / before.total())
    assert f"{classes.kept.occurrences:.1%}" in str(classes.kept)


def test_queries_are_the_most_frequent_words_or_given(example: Corpus) -> None:
    most = ss.classes_from_text(example, queries=2, next_tokens=2, tokens=5)
    assert {most.name(int(query)) for query in most.queries} == {".", "the"}
    ids = [example.token(word) for word in (".", "the")]
    assert ss.classes_from_text(example, queries=ids, next_tokens=2, tokens=5).kept == most.kept
    assert ss.train(most, lr_y=1.0, lr_z=1.0, steps=2)["loss"].sizes["run"] == 1


def test_a_repeated_word_is_no_class() -> None:
    classes = ss.classes_from_text(corpus_of(6, train=[2, 3, 3, 3, 4, 2, 3, 4] * 9), queries=["w3"])
    assert [classes.name(int(n)) for n in classes.next_token] == ["w4"]
    assert classes.kept.occurrences == pytest.approx(2 * 9 / (8 * 9 - 1))


def test_a_pair_that_nothing_precedes_is_no_class() -> None:
    classes = ss.classes_from_text(corpus_of(7, train=[2, 5, *[3, 4, 2, 6] * 10]), queries=["w2"], window=2)
    assert [classes.name(int(n)) for n in classes.next_token] == ["w6"]
    assert classes.weights.tolist() == [1.0]
    assert (classes.kept.occurrences, classes.kept.contexts) == (10 / 41, 1.0)


# --- distinct and common words ----------------------------------------------------------------------------------------


def test_distinct_words_point_to_a_next_word_and_common_ones_do_not() -> None:
    """2 precedes 9 always; 3 goes with 5 after it, and 4 with 6."""
    corpus = corpus_of(10, train=[2, 3, 9, 5] * 60 + [2, 4, 9, 6] * 40)
    words = ss.context_words(corpus, "w9", window=3)
    assert words["word"].values.tolist() == ["w4", "w3", "w2"]
    assert words["is_distinct"].values.tolist() == [True, True, False]
    assert words["count"].values.tolist() == [40, 60, 100]
    first = words.isel(token=0)
    assert (first["next_word"].values.tolist(), first["occurrences"].item()) == (["w6", "", ""], 40)
    assert (first["next_share"][0].item(), first["usual_share"][0].item()) == (1, 0.4)
    assert first["distinctness"].item() == pytest.approx(np.log(1 / 0.4))
    assert 0 < first["by_chance"].item() < 0.05
    assert (words.attrs["num_occurrences"], words.attrs["least"]) == (100, 10)
    assert words.attrs["next_entropy"] == pytest.approx(-0.6 * np.log(0.6) - 0.4 * np.log(0.4))
    assert ss.context_words(corpus, 9, window=3, least=50).sizes["token"] == 2


def test_a_word_is_common_by_the_entropy_of_what_follows() -> None:
    """0.07 nats beyond chance are less than a twentieth of the entropy of eight next words, 2.1 nats."""
    times = {2: [75, *[20] * 7], 3: [100] * 8}
    ids = [i for token, row in times.items() for n, count in enumerate(row) for i in [token, 9, 10 + n] * count]
    words = ss.context_words(corpus_of(18, train=ids), "w9", window=2)
    assert words["word"].values.tolist() == ["w2", "w3"]
    assert words["distinctness"][0] - words["by_chance"][0] > 0.05
    assert not words["is_distinct"].any()


def test_words_of_one_passage_are_left_out() -> None:
    """7 occurs once, in the windows of 22 queries; one query in 50 must have a word before it to show it."""
    corpus = corpus_of(10, train=[7, *[9, 5, 9, 6] * 10, *[2, 3, 9, 5, 2, 4, 9, 6] * 600])
    passage = ss.context_words(corpus, "w9", window=50, least=10).set_index(token="word").sel(token="w7")
    assert (passage["count"].item(), passage["occurrences"].item()) == (22, 1)
    words = ss.context_words(corpus, "w9", window=50)
    assert words.attrs["least"] == 25  # of 1,220
    assert "w7" not in words["word"]


def test_next_words_are_those_that_a_word_makes_more_likely() -> None:
    """After w3 come w6 and w7 more often than usual, in this order, and w5 less often."""
    corpus = corpus_of(10, train=[2, 9, 5] * 60 + [3, 9, 6] * 40 + [3, 9, 7] * 20 + [3, 9, 5] * 10)
    words = ss.context_words(corpus, "w9", window=2).set_index(token="word").sel(token="w3")
    assert words["next_word"].values.tolist() == ["w6", "w7", ""]
    np.testing.assert_allclose(words["next_share"], [4 / 7, 2 / 7, np.nan])
    np.testing.assert_allclose(words["usual_share"], [40 / 130, 20 / 130, np.nan])


def expected_distinctness(probs: np.ndarray, occurrences: int) -> float:
    """E[D] from the distribution of each count, which is binomial."""
    k = np.arange(1, occurrences + 1)
    terms = [stats.binom.pmf(k, occurrences, p) @ (k / occurrences * np.log(k / (occurrences * p))) for p in probs]
    return float(np.sum(terms))


@pytest.mark.parametrize(
    ("probs", "error"),
    [(np.random.default_rng(0).dirichlet(np.full(50, 0.3)), 0.005), (np.array([0.7, 0.2, 0.1]), 0.05)],
)
def test_by_chance_is_what_unrelated_words_have(probs: np.ndarray, error: float) -> None:
    """The variance of a count that is nearly Poisson is what makes the difference for few next words."""
    for occurrences in (1, 2, 5, 40, 1000):
        (approximate,) = chance_distinctness(probs, np.array([occurrences]))
        assert approximate == pytest.approx(expected_distinctness(probs, occurrences), rel=error), occurrences
    several = chance_distinctness(probs, np.array([5, 40, 77, 1000]))
    assert (np.diff(several) < 0).all()
    assert several[1] == pytest.approx(chance_distinctness(probs, np.array([40]))[0], rel=0.02)
    np.testing.assert_allclose(chance_distinctness(np.array([1.0, 0.0]), np.array([1, 3, 5000])), 0, atol=0.02)


def test_the_page_gives_the_numbers_of_the_example(example: Corpus) -> None:
    """docs/text.md and its words on hunter and forest."""
    words = ss.context_words(example, "the")
    hunter = words.set_index(token="word").sel(token="hunter")
    assert words["word"].values[0] == "hunter"
    assert hunter["next_word"].values.tolist() == ["forest", "tree", "hunter"]
    assert (round(hunter["next_share"][0].item(), 2), round(hunter["usual_share"][0].item(), 3)) == (0.29, 0.017)
    stop = words.set_index(token="word").sel(token=".")
    assert not stop["is_distinct"]
    assert stop["count"] == words["count"].max()


def test_what_cannot_be_counted_is_refused_in_a_sentence(example: Corpus) -> None:
    silent = corpus_of(6, train=[2, 3, 4])
    for question, message in (
        (lambda: ss.classes_from_text(example, queries=["hunters"]), "'hunters' does not occur in example: did you me"),
        (lambda: ss.classes_from_text(example, queries=["two words"]), "'two words' is 2 tokens .*: give a single one"),
        (lambda: ss.classes_from_text(example, queries=[288]), "a token is 288: give a whole number from 0 to 287"),
        (lambda: ss.classes_from_text(example, queries=[]), "queries is empty"),
        (lambda: ss.classes_from_text(example, next_tokens=0), "next_tokens"),
        (lambda: ss.classes_from_text(example, window=1), "window is 1: give a whole number from 2"),
        (lambda: ss.classes_from_text("example"), "give what read_corpus"),
        (lambda: ss.classes_from_text(silent, queries=["w4"]), "token 4 never occurs before another token"),
        (lambda: ss.classes_from_text(silent, queries=["w2"]), "no token precedes these queries"),
        (lambda: ss.classes_from_text(silent, split="test"), "made has no split 'test': choose one of train, or 'all'"),
        (lambda: ss.context_words(example, "hunters"), "'hunters' does not occur"),
        (lambda: ss.context_words(example, "the", least=0), "least is 0: give a whole number from 1"),
    ):
        with pytest.raises(ss.InputError, match=message):
            question()
