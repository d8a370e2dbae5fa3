"""How far a layer's closed-form gradient is from autograd's, for authors of layers."""

from __future__ import annotations

import torch

from scansnap.data.named_classes import Data, as_source
from scansnap.dynamics.gradients import LayoutTensors, population_batch
from scansnap.runtime.errors import InputError
from scansnap.systems.yz.architecture import Addition, Layer
from scansnap.systems.yz.attention import AttentionMap
from scansnap.systems.yz.compact import CompactLayout
from scansnap.systems.yz.normalization import Normalization
from scansnap.validation.argument_types import Seed
from scansnap.validation.options import from_names
from scansnap.validation.validate import validated


@validated
def compare_gradients(
    classes: Data,
    *,
    seed: Seed = 0,
    scale: float = 1.0,
    **layer: str | bool | int | Normalization | AttentionMap | Addition,
) -> float:
    """The largest difference between dJ/dz in closed form and by autograd, relative to the largest entry.

    Both are computed at random logits, normal with standard deviation `scale`, for a random gradient of J by the
    direction that the decoder reads, over every class at T -> infinity, in float64.  A layer without a closed form is
    refused, since it uses autograd.

    >>> ss.compare_gradients("syn-small", normalization="layer") < 1e-12
    True
    """
    checked = from_names(Layer, layer)
    checked.check_own_parts()
    layout = CompactLayout.of(as_source(classes).classes, layer=checked)
    tensors = LayoutTensors.of(layout, dtype=torch.float64)
    if not tensors.readout.has_closed_form:
        raise InputError(
            "this layer has no gradient in closed form: its parts give forward maps, and autograd is used."
        )
    generator = torch.Generator().manual_seed(seed)
    batch = population_batch(tensors, 1)
    shape = (1, len(layout.size), layout.layer.heads, layout.num_rows)
    z = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    log_a = torch.log(batch.token_weights)[:, :, None]
    ways = [tensors.readout.forward(z, log_a, batch.class_index, autograd=autograd) for autograd in (False, True)]
    g = torch.randn(ways[0].value.shape, generator=generator, dtype=torch.float64)
    closed, by_autograd = (way.backward(g)[0] for way in ways)
    return float((closed - by_autograd).abs().max() / by_autograd.abs().max())
