"""Every switch of the layer, and every pair of switches, against autograd of the plain M x M model, to 1e-12."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import scansnap as ss
from scansnap.data.sampling import CHOICE_STREAM, choose
from scansnap.dynamics.gradients import directions, population_batch, token_weights
from scansnap.dynamics.kernel_engine import KernelEngine
from scansnap.dynamics.task import Engine
from scansnap.dynamics.yz_tasks import engine_for
from scansnap.dynamics.yz_tensors import YZTensorEngine
from scansnap.systems.yz.architecture import L2Normalization, Softmax
from tests.dynamics.reference import (
    RATE,
    check_gradient,
    decoder_of,
    engine_of,
    logits_of,
    random_matrices,
    relative,
    rows_of,
    start_of,
    work_of,
)
from tests.strategies import sequence_classes

pytestmark = pytest.mark.rounding

SWITCHES: dict[str, dict[str, Any]] = {
    "layer norm": {"normalization": "layer"},
    "residual": {"residual": True},
    "heads": {"heads": 3},
    "prior": {"attention_prior": True},
    "fixed set": {"num_sequences": 9},
}
PAIRS = [
    ("none", {}),
    *SWITCHES.items(),
    *((f"{a}, {b}", {**SWITCHES[a], **SWITCHES[b]}) for a, b in itertools.combinations(SWITCHES, 2)),
    ("all", {name: value for one in SWITCHES.values() for name, value in one.items()}),
]
ARCHITECTURES = [
    {"normalization": n, "residual": r, "heads": h}
    for n, r, h in itertools.product(("l2", "layer"), (False, True), (1, 2))
]
BOTH = pytest.mark.parametrize("kind", [KernelEngine, YZTensorEngine])
CASES = pytest.mark.parametrize("switches", [value for _, value in PAIRS], ids=[name for name, _ in PAIRS])


@BOTH
@CASES
@settings(max_examples=6)
@given(classes=sequence_classes(), seed=st.integers(0, 10**6), length=st.integers(2, 40), batch=st.integers(1, 12))
def test_against_autograd(
    kind: type[Engine], switches: dict[str, Any], classes: ss.SequenceClasses, seed: int, length: int, batch: int
) -> None:
    """One update at a huge rate from a random (Y, Z) shows the gradient: sampler, layout and engine are all in it."""
    options = {**switches, "seeds": seed}
    decoder, attention = random_matrices(classes, seed, options.get("heads", 1))
    if "attention_prior" in options:
        options["attention_prior"] = np.random.default_rng(seed).normal(size=classes.vocab_size)
    if (count := options.get("num_sequences")) is None:
        sequences, owner = ss.sample_sequences(classes, num=batch, seq_len=length, seed=seed)
    else:  # the set is the first nine sequences of the seed, the batch a choice of them
        selected = np.empty((1, batch), np.int64)
        choose(np.uint64(seed), CHOICE_STREAM, count, selected)
        sequences, owner = ss.sample_sequences(classes, num=count, seq_len=length, seed=seed)
        sequences, owner = sequences[selected[0]], owner[selected[0]]
    check_gradient(kind, classes, decoder, attention, sequences, owner, **options)


@BOTH
@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=str)
@pytest.mark.parametrize(
    ("options", "make"),
    [
        ({"momentum": 0.9}, lambda groups: torch.optim.SGD(groups, momentum=0.9)),
        ({"optimizer": "adam"}, lambda groups: torch.optim.Adam(groups)),
        ({"optimizer": "sign_sgd"}, None),
        ({"optimizer": "normalized_sgd"}, None),
    ],
    ids=["momentum", "adam", "sign", "normalized"],
)
def test_optimizers_on_whole_matrices(
    kind: type[Engine], options: dict[str, Any], make: Any, architecture: dict[str, Any]
) -> None:
    """Eight steps from a start with equal columns against the whole model: merged columns move like separate ones."""
    classes = ss.SequenceClasses(
        probs=[[0.5, 0.3, 0.2, 0, 0, 0, 0, 0, 0], [0.4, 0, 0, 0.1, 0.5, 0, 0, 0, 0], [0, 0.6, 0, 0.4, 0, 0, 0, 0, 0]],
        query=[5, 5, 1],
        next_token=[6, 7, 0],
        vocab_size=9,
        weights=[0.5, 0.2, 0.3],
    )
    heads = architecture["heads"]
    decoder, attention = random_matrices(classes, 3, heads)
    decoder[..., 2:6] = decoder[..., 2:3]  # columns that are no next tokens and start equal
    model = ss.YZTransformer(9, dtype=torch.float64, **architecture)
    with torch.no_grad():
        model.decoder.copy_(torch.from_numpy(decoder))
        model.attention_logits.copy_(torch.from_numpy(attention))
    sequences, owner = ss.sample_sequences(classes, num=40, seq_len=20, seed=4)
    rates = {model.decoder: 0.03, model.attention_logits: 0.02}
    torch_s = make([{"params": [p], "lr": rate} for p, rate in rates.items()]) if make else None
    for _ in range(8):
        model.zero_grad()
        model.loss(torch.from_numpy(sequences), torch.from_numpy(classes.next_token[owner])).backward()
        if torch_s is not None:
            torch_s.step()
            continue
        with torch.no_grad():
            for p, rate in rates.items():
                step = p.grad.sign() if options["optimizer"] == "sign_sgd" else p.grad / p.grad.norm()
                p -= rate * step
    engine = engine_of(
        kind,
        classes,
        init=(decoder, attention),
        lr_y=0.03,
        lr_z=0.02,
        steps=8,
        batch_size=None,
        seq_len=20,
        num_sequences=40,
        seeds=4,
        **architecture,
        **options,
    )
    engine.advance(8)
    layout = start_of(classes, init=(decoder, attention), **architecture).layout
    assert layout.num_columns < 9
    whole = model.decoder.detach().numpy().reshape(heads, 9, 9)
    assert relative(decoder_of(engine)[0][:, layout.column_of_token], rows_of(layout, whole)) < 1e-10
    z = model.attention_logits.detach().numpy().reshape(heads, 9, 9)[:, classes.queries][:, :, layout.rows]
    assert relative(logits_of(engine)[0], z.swapaxes(0, 1).reshape(-1, layout.num_rows)) < 1e-10


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=str)
def test_modified_gradient_moves_one_row_of_w(architecture: dict[str, Any]) -> None:
    """Lemma 3 for every layer: with V fixed, V^T Y moves as dw_j = 1[j = n] P(n) (e_n - alpha_n)."""
    classes = ss.syn_medium(num_query=2)
    y, z = random_matrices(classes, 1, architecture["heads"])
    engine = engine_of(
        YZTensorEngine,
        classes,
        init=(y, z),
        lr_y=RATE,
        lr_z=0.0,
        batch_size=None,
        seq_len=math.inf,
        decoder_gradient="modified",
        **architecture,
    )
    tensors, before = engine._model._layout, decoder_of(engine)
    batch = population_batch(tensors, 1)
    value = directions(tensors, engine._model.parameters["attention_logits"], batch, token_weights(batch)).value
    v = tensors.readout.rows.weigh(value).flatten(2)
    engine.advance(1)
    moved = (torch.from_numpy((decoder_of(engine) - before) / RATE))[0]
    columns = start_of(classes, init=(y, z), **architecture).layout.column_of_token
    result = (v[0] @ moved).numpy()[:, columns]
    alpha = torch.softmax((v[0] @ torch.from_numpy(before)[0])[:, torch.from_numpy(columns)], dim=1).numpy()
    expected = (np.eye(classes.vocab_size)[classes.next_token] - alpha) * classes.weights[:, None]
    assert relative(result, expected) < 1e-10


class Warm(Softmax):
    """A user's map, though it is the softmax."""

    def forward(self, z: torch.Tensor, log_a: torch.Tensor) -> torch.Tensor:
        return super().forward(z / 2, log_a)


class Unchanged(L2Normalization):
    """A user's normalization."""


def test_the_kernel_takes_built_in_parts_alone() -> None:
    for switch in (
        {},
        {"normalization": "layer"},
        {"residual": True},
        {"heads": 2},
        {"num_sequences": 5},
        {"optimizer": "sign_sgd"},
        {"optimizer": "normalized_sgd"},
        {"decoder_gradient": "modified"},
    ):
        assert engine_for(work_of(ss.syn_small(), **switch)) is KernelEngine
    for part in ({"attention_map": Warm()}, {"normalization": Unchanged()}):
        work = work_of(ss.syn_small(), **part)
        assert not KernelEngine.serves(work)
        assert engine_for(work) is YZTensorEngine


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=str)
def test_uniform_starts_are_what_they_say(architecture: dict[str, Any]) -> None:
    """The first head's kept rows are the basic start's; a merged row is the mean of the rows it stands for."""
    classes = ss.syn_small()
    basic = start_of(classes, init="uniform", seeds=5)
    start = start_of(classes, init="uniform", seeds=5, init_scale_z=3.0, **architecture)
    rows = start.layout.num_rows
    assert np.array_equal(start.decoder[:, :rows], basic.decoder)
    heads = architecture["heads"]
    assert np.allclose(start.attention_logits[:, ::heads], 3 * basic.attention_logits, rtol=1e-15)
    if heads > 1:
        assert np.abs(start.attention_logits[:, 1::heads] - start.attention_logits[:, ::heads]).max() > 0.1
        blocks = start.decoder[0].reshape(heads, start.layout.num_decoder_rows, -1)
        assert np.abs(blocks[1] - blocks[0]).max(-1).min() > 0.01  # in every row, also the merged one
    if len(start.layout.other_tokens):
        spread = start.decoder[0, start.layout.num_decoder_rows - 1, : classes.vocab_size].std() * math.sqrt(34)
        expected = 1 / math.sqrt(3 * len(start.layout.other_tokens))  # of a mean of that many uniform in +-1
        assert 0.6 * expected < spread < 1.5 * expected  # 34 entries: four standard errors


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"normalization": "batch"}, "unknown normalization 'batch': choose one of l2, layer"),
        ({"residual": 1}, "residual is 1: give True or False"),
        ({"heads": 0}, "heads is 0: give a whole number from 1"),
        ({"heads": True}, "heads is True"),
        ({"optimizer": "sign"}, "did you mean 'sign_sgd'"),
        ({"init_scale_z": -1.0, "init": "uniform"}, "init_scale_z is -1.0: give a finite number of at least 0"),
        ({"init_scale_z": 2.0}, "it scales only the start 'uniform'"),
        ({"num_sequences": 0}, "num_sequences is 0: give a whole number from 1"),
        ({"attention_prior": [1.0]}, "attention_prior has 1 numbers for 34 tokens: give one number for each token"),
        ({"attention_prior": {"comon": 1.0}}, "did you mean 'common'"),
        ({"attention_prior": {"common": math.inf}}, "attention_prior of 'common' is inf: give a finite number from"),
        ({"heads": 2, "init": (np.zeros((34, 34)), np.zeros((34, 34)))}, r"give \(2, 34, 34\)"),
    ],
)
def test_refusals(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ss.InputError, match=sentence):
        ss.train(ss.syn_small(), lr_y=1.0, lr_z=1.0, steps=1, **options)


def test_local_kinds_come_with_a_residual_connection(tmp_path) -> None:
    classes = ss.local_common(num_distinct=2, vocab_size=20)
    result = ss.train(classes, lr_y=1.0, lr_z=1.0, steps=2, residual=True, store=tmp_path / "run.zarr")
    kinds = result["local_token_kind"]
    assert kinds.dims == ("query", "token")
    for query in classes.queries:
        own = kinds.sel(query=query)
        assert own["token"].values[own == "common"].tolist() == classes.local_common_tokens(int(query)).tolist()
        assert (own == "distinct").sum() == 2 * 3  # two of its own and one shared across queries, for each class
    assert "local_token_kind" not in ss.train(classes, lr_y=1.0, lr_z=1.0, steps=2).coords
    assert "local_token_kind" not in ss.train(classes, lr_y=1.0, lr_z=1.0, steps=2, residual=True, record="loss").coords
