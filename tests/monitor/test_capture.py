"""Captured weights equal those of the definition, and those that models return, however attention is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import scansnap as ss
from tests.monitor.small_models import ByHand

T, S = 7, 9
CAUSAL = torch.ones(T, T).tril().bool()

pytestmark = [
    pytest.mark.filterwarnings("error:the attention captured in"),  # the weights do not give the model's output
    pytest.mark.filterwarnings("ignore:.*nested_tensor|flex_attention called|return_lse is deprecated"),
]


def capture(model: nn.Module, probe: Any, announce: Callable[[ss.Watch], None] = lambda watch: None) -> ss.Watch:
    watch = ss.watch(model, probe=probe, rows=None, record=("entropy",), errors="raise")
    announce(watch)
    return watch


def patterns(watch: ss.Watch) -> dict[str, NDArray[np.float32]]:
    """The weights (H, T, S) of the first window in each module."""
    snapshots = watch.dataset.isel(step=0)
    return dict(zip(snapshots["module"].values.tolist(), snapshots["pattern"].values, strict=True))


def assert_weights(found: NDArray[np.float32], exact: Tensor, atol: float = 1e-6) -> None:
    """Weights (H, T, S), which may be filled up with NaN."""
    heads, rows, keys = exact.shape
    np.testing.assert_allclose(found[:heads, :rows, :keys], exact, atol=atol, rtol=0)
    assert np.isfinite(found).sum() == exact.numel()


class Fused(nn.Module):
    """Calls the fused function with what it is given."""

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return functional.scaled_dot_product_attention(*args, **kwargs)


def tensors(*shape: int, count: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [2 * torch.randn(shape, generator=generator) for _ in range(count)]


def exact(query: Tensor, key: Tensor, bias: Tensor | None = None, scale: float | None = None) -> Tensor:
    """Weights in float64 from their definition; `bias` is added, or boolean and True where a key is visible."""
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    logits = torch.einsum("bhtd,bhsd->bhts", query.double(), key.double()) * (scale or query.shape[-1] ** -0.5)
    if bias is not None:
        logits = logits.masked_fill(~bias, -math.inf) if bias.dtype == torch.bool else logits + bias
    return (logits.exp() / logits.exp().sum(-1, keepdim=True)).float()


def test_fused_attention_however_called() -> None:
    q, k, v = tensors(2, 6, T, 4)
    boolean = torch.rand(2, 1, T, T, generator=torch.Generator().manual_seed(2)) > 0.3
    boolean[..., 0] = True
    added = torch.randn(6, T, T)
    hides_a_row = CAUSAL.clone()
    hides_a_row[2] = False
    calls: list[tuple[tuple[Any, ...], dict[str, Any], Tensor]] = [
        ((q, k, v), {}, exact(q, k)),
        ((q, k, v, None, 0.0, True), {}, exact(q, k, CAUSAL)),
        ((), {"query": q, "key": k, "value": v, "is_causal": True, "scale": 0.7}, exact(q, k, CAUSAL, 0.7)),
        ((q, k, v, boolean), {}, exact(q, k, boolean)),
        ((q, k, v), {"attn_mask": added}, exact(q, k, added)),
        ((q, k, v), {"attn_mask": CAUSAL[3:4]}, exact(q, k, CAUSAL[3:4])),
        ((q, k, v), {"attn_mask": causal_lower_right(T, T)}, exact(q, k, CAUSAL)),
        ((q, k, v), {"attn_mask": hides_a_row}, exact(q, k, hides_a_row).nan_to_num(0.0)),
        *[((q, k[:, :g], v[:, :g]), {"enable_gqa": True}, exact(q, k[:, :g])) for g in (1, 2, 3)],
    ]
    for args, kwargs, weights in calls:
        watch = capture(Fused(), lambda model, args=args, kwargs=kwargs: model(*args, **kwargs))
        assert_weights(patterns(watch)["Fused"], weights[0])


def test_heads_that_share_an_axis_with_windows() -> None:
    class Shared(Fused):
        def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(*(x.flatten(0, 1) for x in (q, k, v, mask)))

    q, k, v = tensors(2, 3, T, 4)
    mask = torch.rand(2, 3, T, T) > 0.2
    mask[..., 0] = True
    assert_weights(patterns(capture(Shared(), (q, k, v, mask)))["Shared"], exact(q, k, mask)[0])


@pytest.mark.parametrize("autocast", [False, True])
def test_bfloat16_is_exact_for_the_rounded_queries_and_keys(autocast: bool) -> None:
    q, k, v = tensors(2, 3, T, 4)
    given = (q, k, v) if autocast else (q.bfloat16(), k.bfloat16(), v.bfloat16())
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        found = patterns(capture(Fused(), given))["Fused"]
    assert_weights(found, exact(q.bfloat16(), k.bfloat16())[0])
    assert np.abs(found - exact(q, k)[0].numpy()).max() > 1e-4


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("more", [{}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": 5, "vdim": 6}])
@pytest.mark.parametrize("masked", ["none", "padding", "boolean", "added", "each head", "causal"])
def test_multi_head_attention(need_weights: bool, more: dict[str, Any], masked: str) -> None:
    torch.manual_seed(0)
    batch_first = masked in ("none", "added", "causal")
    attention = nn.MultiheadAttention(8, 2, batch_first=batch_first, **more)
    nn.init.normal_(attention.in_proj_bias)
    query, key = torch.randn(2, T, 8), torch.randn(2, S, more.get("kdim", 8))
    value = torch.randn(2, S, more.get("vdim", 8))
    masks: dict[str, dict[str, Any]] = {
        "none": {},
        "padding": {"key_padding_mask": torch.arange(S) > torch.tensor([[5], [8]])},
        "boolean": {"attn_mask": torch.ones(T, S).triu(3).bool()},
        "added": {"attn_mask": torch.randn(T, S)},
        "each head": {"attn_mask": torch.randn(4, T, S), "key_padding_mask": torch.randn(2, S)},
        "causal": {"attn_mask": torch.ones(T, S).triu(1).bool(), "is_causal": True},
    }
    args = (query, key, value) if batch_first else tuple(t.transpose(0, 1) for t in (query, key, value))
    kwargs = masks[masked]
    with torch.no_grad():
        _, expected = attention(*args, **kwargs, need_weights=True, average_attn_weights=False)
    watch = capture(attention, lambda model: model(*args, **kwargs, need_weights=need_weights))
    if not (more.get("add_bias_kv") and masked == "causal" and not need_weights):  # the hint hides the added keys too
        assert_weights(patterns(watch)["MultiheadAttention"], expected[0], 2e-6)
    assert watch.dataset["attention_kind"].item() == "cross"


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")  # users mix the two
def test_multi_head_attention_without_a_batch() -> None:
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(8, 2), torch.randn(T, 8)
    mask = {"key_padding_mask": torch.arange(T) > 4, "attn_mask": torch.randn(T, T)}
    with torch.no_grad():
        _, expected = attention(x, x, x, **mask, average_attn_weights=False)
    watch = capture(attention, lambda model: model(x, x, x, **mask))
    assert_weights(patterns(watch)["MultiheadAttention"], expected, 2e-6)


@pytest.mark.parametrize("batch_first", [True, False])
def test_torch_transformers_are_captured_beside_their_fast_paths(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=batch_first)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, T, 8) if batch_first else torch.randn(T, 2, 8)
    padding = torch.arange(T) > torch.tensor([[4], [6]])
    watch = capture(encoder, lambda model: model(x, src_key_padding_mask=padding))
    assert watch.seen == ("layers.0.self_attn", "layers.1.self_attn")
    with torch.no_grad():
        _, expected = encoder.layers[0].self_attn(x, x, x, key_padding_mask=padding, average_attn_weights=False)
    assert_weights(patterns(watch)["layers.0.self_attn"], expected[0], 2e-6)

    causal = nn.Transformer.generate_square_subsequent_mask(T)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=batch_first)
    snapshots = capture(model, lambda model: model(x, x, tgt_mask=causal, tgt_is_causal=True)).dataset
    assert dict(zip(snapshots["module"].values.tolist(), snapshots["attention_kind"].values.tolist(), strict=True)) == {
        "encoder.layers.0.self_attn": "self",
        "decoder.layers.0.self_attn": "causal",
        "decoder.layers.0.multihead_attn": "cross",
    }


class Flexible(nn.Module):
    def __init__(self, compiled: bool) -> None:
        super().__init__()
        self.function = torch.compile(flex_attention) if compiled else flex_attention
        self.outputs: list[Any] = []

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **kwargs: Any) -> Any:
        return self.function(q, k, v, **kwargs)


@pytest.mark.parametrize("compiled", [False, True])
def test_flex_attention(compiled: bool) -> None:
    length = 48
    q, k, v = tensors(2, 4, length, 8)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    documents = torch.arange(length) // torch.tensor([[20], [12]])

    def near(score: Tensor, b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return score - slopes[h] * (t - s).abs()

    def same_document(b: Tensor, h: Tensor, t: Tensor, s: Tensor) -> Tensor:
        return (documents[b, t] == documents[b, s]) & (t >= s)

    mask = create_block_mask(same_document, 2, None, length, length, device="cpu", BLOCK_SIZE=16)
    t, s = torch.arange(length)[:, None], torch.arange(length)
    shown = (documents[:, :, None] == documents[:, None]) & (t >= s)
    bias = (-slopes[:, None, None] * (t - s).abs()).masked_fill(~shown[:, None], -math.inf)
    options = {"score_mod": near, "block_mask": mask, "enable_gqa": True}
    model = Flexible(compiled)
    watch = capture(model, lambda model: model(q, k[:, :2], v[:, :2], **options))
    assert_weights(patterns(watch)["Flexible"], exact(q, k[:, :2], bias)[0])
    assert_weights(patterns(capture(model, (q, k, v)))["Flexible"], exact(q, k)[0])
    outputs: list[Any] = []
    capture(model, lambda model: outputs.append(model(q, k[:, :2], v[:, :2], return_lse=True, **options)))
    theirs = flex_attention(q, k[:, :2], v[:, :2], return_lse=True, **options)
    for ours, their in zip(outputs[0], theirs, strict=True):
        torch.testing.assert_close(ours, their, atol=2e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:no attention was captured")  # it is announced later
@pytest.mark.parametrize("way", ["softmax", "queries and keys"])
def test_attention_by_hand(way: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(ByHand(), ByHand())
    x = 3 * torch.randn(2, T, 12)
    options: dict[str, Any] = {}
    if way == "queries and keys":
        options = {"queries_and_keys": lambda module, x: module.project(x)[:2], "is_causal": True}
    watch = capture(model, x, lambda watch: watch.attention(*model, **options))
    assert watch.seen == ("0", "1")
    unchecked = ", 2 of them by your function, which cannot be checked" if options else ""
    assert watch.coverage == f"2 of 2 attention modules captured{unchecked}"
    with torch.no_grad():
        q, k, _ = model[0].project(x)
    assert_weights(patterns(watch)["0"], exact(q, k, CAUSAL)[0])
    assert watch.dataset["attention_kind"].values.tolist() == ["causal", "causal"]
    assert not any(module._forward_pre_hooks for module in model)


class OwnAttention(nn.Module):
    """Causal attention of two heads with a softmax of its own, taken in one of several ways; windows are two too."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.parts = way, nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def project(self, x: Tensor) -> list[Tensor]:
        return [part(x).unflatten(2, (2, 4)).transpose(1, 2) for part in self.parts]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x)
        logits = (q @ k.mT / 2).masked_fill(~CAUSAL, -math.inf)
        if self.way == "another layout":
            return torch.einsum("bths,bhsd->bthd", logits.transpose(1, 2).softmax(-1), v).flatten(2)
        if self.way == "hidden again":
            weights = logits.softmax(-1).masked_fill(~CAUSAL, 0.0)
        elif self.way == "hidden after softmax":
            weights = (q @ k.mT / 2).softmax(-1).tril()
        elif self.way == "exponentials":
            weights = logits.exp() / logits.exp().sum(-1, keepdim=True)
        else:
            weights = torch.cat([rows.softmax(-1) for rows in logits.split(3, 2)], 2)
        return (weights @ v).transpose(1, 2).flatten(2)


class Unnamed(OwnAttention):
    """Nothing but its softmax says that it attends."""


class Mixing(OwnAttention):
    """Its class is not named for attention, but it has projections that are."""

    def __init__(self, way: str) -> None:
        super().__init__(way)
        self.wq, self.wk, self.wv = self.parts


@pytest.mark.parametrize("kind", [OwnAttention, Mixing, Unnamed])
@pytest.mark.parametrize(
    ("way", "is_read"),
    [
        ("another layout", True),
        ("hidden again", True),
        ("hidden after softmax", False),
        ("exponentials", False),
        ("in parts", False),
    ],
)
def test_a_softmax_that_is_not_all_of_the_attention_is_not_read(kind: Any, way: str, is_read: bool) -> None:
    torch.manual_seed(0)
    x, model = torch.randn(2, T, 8), nn.Sequential(kind(way), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True))
    watch = capture(model, x)
    is_read &= kind is OwnAttention
    is_known = kind is not Unnamed or way not in ("exponentials", "in parts")
    missed = "; not captured: 0" if is_known and not is_read else ""
    assert watch.coverage == f"{1 + is_read} of {1 + is_known} attention modules captured{missed}"
    if is_read:
        with torch.no_grad():
            q, k, _ = model[0].project(x)
        assert_weights(patterns(watch)["0"], exact(q, k, CAUSAL)[0])


def test_a_softmax_for_each_token_is_no_attention() -> None:
    """A square matrix for each token, as hyper-connections have it."""

    class Streams(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + x.unflatten(-1, (2, 2, 2)).sum(-1).softmax(-1).sum((-1, -2))[..., None]

    model = nn.Sequential(Streams(), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True))
    assert capture(model, torch.randn(2, T, 8)).coverage == "1 of 1 attention modules captured"


class OwnDecoder(nn.Module):
    """Attends to its own tokens and to others in one function."""

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        own = functional.scaled_dot_product_attention(x, x, x, is_causal=True)
        return functional.scaled_dot_product_attention(own, memory, memory)


@pytest.mark.parametrize("keys", [T, S])
def test_self_attention_and_cross_attention_in_one_function(keys: int) -> None:
    snapshots = capture(OwnDecoder(), (torch.randn(2, 1, T, 4), torch.randn(2, 1, keys, 4))).dataset
    assert snapshots["attention_kind"].values.tolist() == ["causal", "cross"]
    assert snapshots["module"].values.tolist() == ["OwnDecoder", "OwnDecoder (call 2)"]


SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
SMALL = {"vocab_size": 97, "bos_token_id": 1, "eos_token_id": 2}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "GPT2": ("LMHeadModel", {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "Llama": ("ForCausalLM", GROUPED),
    "Mistral": ("ForCausalLM", {**GROUPED, "sliding_window": 5}),
    "Gemma2": ("ForCausalLM", {**GROUPED, "sliding_window": 5, "attn_logit_softcapping": 2.0}),
    "Qwen2": ("ForCausalLM", {**SIZES, "num_key_value_heads": 2}),
    "Qwen3": ("ForCausalLM", GROUPED),
    "GPTNeoX": ("ForCausalLM", SIZES),
    "GptOss": ("ForCausalLM", {**GROUPED, "sliding_window": 5, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "Bert": ("ForMaskedLM", SIZES),
    "T5": (
        "ForConditionalGeneration",
        {"vocab_size": 97, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
        | {"decoder_start_token_id": 0},
    ),
}


def make(family: str, implementation: str = "eager") -> Any:
    """A model of Hugging Face with attention that is not nearly uniform."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    head, sizes = FAMILIES[family]
    model = getattr(transformers, family + head)(getattr(transformers, f"{family}Config")(**sizes))
    for parameter in model.parameters():
        parameter.data.mul_(1.0 if family == "T5" else 3.0)
    for module in model.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation_internal = implementation  # set_... refuses what is not installed
    return model.train()


def ids(length: int = 13) -> Tensor:
    return torch.randint(3, 97, (2, length), generator=torch.Generator().manual_seed(1))


def returned(family: str, inputs: dict[str, Tensor]) -> Any:
    """What the model returns with eager attention."""
    with torch.no_grad():
        return make(family).eval()(**inputs, output_attentions=True)


@torch.library.custom_op("scansnap_tests::attend", mutates_args=())
def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, softcap: float, sinks: Tensor) -> Tensor:
    """Stands in for a kernel: nothing of what it computes with is seen by torch's functions."""
    logits = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT * scale
    logits = softcap * (logits / softcap).tanh() if softcap else logits
    logits = torch.cat([logits.masked_fill(~mask, -math.inf), sinks.expand(*logits.shape[:3], -1)], -1)
    return logits.softmax(-1)[..., : k.shape[2]] @ v.repeat_interleave(q.shape[1] // v.shape[1], 1)


def kernel(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **more: Any) -> Any:
    scaling = more.get("scaling") or q.shape[-1] ** -0.5  # older GPT-2 gives none
    sinks = more.get("s_aux")
    sinks = q.new_zeros(1, 1, 1, 0) if sinks is None else sinks[:, None, None]
    return attend(q, k, v, mask, scaling, more.get("softcap") or 0.0, sinks).transpose(1, 2), None


FAMILIES_AND_IMPLEMENTATIONS = [
    *((family, "sdpa") for family in FAMILIES if family not in ("Bert", "T5", "Gemma2", "GptOss")),
    *((family, implementation) for family in ("GPT2", "Gemma2") for implementation in ("eager", "flex_attention")),
    ("GptOss", "eager"),
    *((family, "kernel") for family in ("GPT2", "Llama", "Gemma2", "GptOss")),
]


@pytest.mark.parametrize(("family", "implementation"), FAMILIES_AND_IMPLEMENTATIONS)
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_hugging_face_decoders(family: str, implementation: str, device: str) -> None:
    """To 1e-5 of `output_attentions`, 1e-4 on a GPU; the model's own attention and cache are as before."""
    if implementation == "kernel":
        register_kernel()
    model = make(family, implementation).to(device)
    watch = capture(model, {"input_ids": ids()})
    expected = returned(family, {"input_ids": ids()}).attentions
    for weights, exact in zip(patterns(watch).values(), expected, strict=True):
        assert_weights(weights, exact[0], 1e-5 if device == "cpu" else 1e-4)
    assert watch.coverage == "2 of 2 attention modules captured"
    assert {m.config._attn_implementation for m in model.modules() if hasattr(m, "config")} == {implementation}
    assert model.config.use_cache == make(family).config.use_cache


def register_kernel() -> None:
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("kernel", kernel)
    ALL_MASK_ATTENTION_FUNCTIONS.register(
        "kernel", lambda *args, **kw: sdpa_mask(*args, **kw | {"allow_is_causal_skip": False})
    )


def test_a_capture_that_changes_the_model_is_refused() -> None:
    """A kernel that does something else than the implementations that can be captured."""
    register_kernel()
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register("kernel", lambda *args, **kw: (kernel(*args, **kw)[0].roll(1, 1), None))
    with pytest.raises(ss.InputError, match=r"captured in model.layers.0.self_attn does not give what the model comp"):
        capture(make("Llama", "kernel"), {"input_ids": ids()})


@pytest.mark.parametrize("implementation", ["sdpa", "kernel"])
@pytest.mark.parametrize("settings", [{"use_cache": False}, {"use_cache": True}, {"gradient_checkpointing": True}])
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # older checkpointing
def test_packed_documents_are_apart_where_the_model_keeps_them_apart(settings: Any, implementation: str) -> None:
    """Hugging Face models do so only without a cache, which they make by default unless they recompute activations."""
    register_kernel()
    model, inputs = make("Llama", implementation), {"input_ids": ids()[:1], "position_ids": torch.arange(13)[None] % 5}
    model.config.use_cache = settings.get("use_cache", True)
    if "gradient_checkpointing" in settings:
        model.gradient_checkpointing_enable()
    with torch.no_grad():
        expected = model(**inputs).logits  # dropout is zero
        alone = model(inputs["input_ids"][:, 5:10]).logits
    are_apart = torch.allclose(expected[:, 5:10], alone, atol=1e-4)
    assert are_apart == (settings != {"use_cache": True})
    weights = patterns(capture(model, inputs))["model.layers.0.self_attn"]
    assert (weights[:, 5:, :5].max() == 0) == are_apart


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", ["Llama", "Mistral", "Bert"])
def test_hugging_face_padding(family: str, side: str) -> None:
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[0, -4:] = 0
    inputs = {"input_ids": ids(), "attention_mask": mask if side == "right" else mask.flip(1)}
    expected = returned(family, inputs).attentions
    for weights, exact in zip(patterns(capture(make(family, "sdpa"), inputs)).values(), expected, strict=True):
        is_real = inputs["attention_mask"][0].bool()  # what padding attends to does not count
        np.testing.assert_allclose(weights[:, is_real], exact[0][:, is_real], atol=1e-5, rtol=0)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_encoder_decoder_and_cross_attention(implementation: str) -> None:
    mask = torch.ones(2, 13, dtype=torch.long)
    mask[0, 9:] = 0
    inputs = {"input_ids": ids(), "attention_mask": mask, "decoder_input_ids": ids(7)}
    expected = returned("T5", inputs)
    found = patterns(capture(make("T5", implementation), inputs))
    assert len(found) == 6
    for name, layers in {
        "encoder.block.{}.layer.0.SelfAttention": expected.encoder_attentions,
        "decoder.block.{}.layer.0.SelfAttention": expected.decoder_attentions,
        "decoder.block.{}.layer.1.EncDecAttention": expected.cross_attentions,
    }.items():
        for i, weights in enumerate(layers):
            assert_weights(found[name.format(i)], weights[0], 1e-5)
