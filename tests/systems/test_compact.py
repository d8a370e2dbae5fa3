"""The compact layout keeps exactly what can matter."""

from __future__ import annotations

import numpy as np
from hypothesis import given

import scansnap as ss
from scansnap.systems.yz.compact import CompactLayout
from tests.strategies import sequence_classes


def test_zero_start_leaves_one_column_per_class_and_one_for_the_rest() -> None:
    classes = ss.single_common(num_classes=10, vocab_size=1000)
    layout = CompactLayout.of(classes)
    assert layout.num_columns == 11
    assert layout.multiplicity[:10].tolist() == [1] * 10
    assert layout.multiplicity[10] == 990
    assert (layout.num_rows, layout.num_queries) == (51, 1)


@given(sequence_classes())
def test_layout_is_consistent(classes: ss.SequenceClasses) -> None:
    layout = CompactLayout.of(classes)
    assert layout.multiplicity.sum() == classes.vocab_size
    assert (layout.multiplicity[layout.next_column] == 1).all()
    next_tokens = list(dict.fromkeys(classes.next_token.tolist()))  # in the order of their first classes
    assert layout.next_column.tolist() == [next_tokens.index(token) for token in classes.next_token]
    assert (np.bincount(layout.column_of_token, minlength=len(layout.multiplicity)) == layout.multiplicity).all()
    assert (classes.queries[layout.query_index] == classes.query).all()
    for i in range(classes.num_classes):
        assert (layout.rows[layout.support[i, : layout.size[i]]] == classes.support(i)).all()
    offsets, entries = layout.query_entries()
    for q, query in enumerate(classes.queries):
        owned = np.unique(np.concatenate([classes.support(i) for i in classes.of_query(query)]))
        assert layout.rows[entries[offsets[q] : offsets[q + 1]]].tolist() == owned.tolist()
