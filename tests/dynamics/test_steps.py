"""Schedules, weight decay and clipping: against plain steps with autograd's gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import scansnap as ss

pytestmark = pytest.mark.rounding

PRIOR = {"common": -1.0}
SETTINGS: list[dict[str, Any]] = [
    {"schedule": "cosine"},
    {"weight_decay": 0.3},
    {"clip": 0.05},
    {"schedule": "linear", "weight_decay": 0.2, "clip": 0.1, "momentum": 0.9},
    {"schedule": "linear", "weight_decay": 0.2, "clip": 0.1, "optimizer": "adam"},
    {"weight_decay": 0.5, "attention_prior": PRIOR},
]


class Plain:
    """The optimizer of a setting in PyTorch: AdamW's decay for every rule, and a clipped gradient."""

    def __init__(self, parameters: list[torch.Tensor], rates: list[float], options: dict[str, Any]) -> None:
        self.parameters, self.rates, self.options = parameters, rates, options
        groups = [{"params": [p], "lr": rate} for p, rate in zip(parameters, rates, strict=True)]
        adam = options.get("optimizer") == "adam"
        self.optimizer: Any = (
            torch.optim.Adam(groups) if adam else torch.optim.SGD(groups, momentum=options.get("momentum", 0))
        )

    def step(self, share: float, centers: list[Any]) -> None:
        if self.options.get("clip"):
            norm = torch.cat([p.grad.ravel() for p in self.parameters if p.grad is not None]).norm()
            for p in self.parameters:  # PyTorch's own adds 1e-6 to the norm
                p.grad = p.grad * min(1.0, self.options["clip"] / float(norm)) if p.grad is not None else None
        for group, p, rate, center in zip(
            self.optimizer.param_groups, self.parameters, self.rates, centers, strict=True
        ):
            group["lr"] = rate * share
            with torch.no_grad():
                p -= rate * share * self.options.get("weight_decay", 0.0) * (p - center)
        self.optimizer.step()


@pytest.mark.parametrize("options", SETTINGS, ids=lambda options: "-".join(options))
def test_steps_are_those_of_pytorch(options: dict[str, Any]) -> None:
    """Six expected updates of the plain model, every entry of Y and Z, in float64."""
    classes, steps = ss.syn_small(), 6
    run = ss.train(classes, lr_y=0.7, lr_z=0.4, steps=steps, batch_size=None, seq_len=float("inf"), dtype="float64",
                   record=("decoder", "attention_logits"), **options)  # fmt: skip
    size, tokens = classes.vocab_size, classes.contextual_tokens
    y, z = (torch.zeros(size, size, dtype=torch.float64, requires_grad=True) for _ in range(2))
    prior = torch.zeros(size, dtype=torch.float64)
    if "attention_prior" in options:
        prior[classes.common_tokens] = PRIOR["common"]
    plain = Plain([y, z], [0.7, 0.4], options)
    probs, query = torch.tensor(classes.probs), torch.tensor(classes.query)
    for step in range(steps + 1):
        np.testing.assert_allclose(run["decoder"][0, step, 0, 0], y.detach()[tokens], atol=1e-12)
        np.testing.assert_allclose(
            run["attention_logits"][0, step, 0, 0], z.detach()[classes.queries][:, tokens], atol=1e-12
        )
        weights = probs * torch.exp(z[query] + prior)
        logits = torch.nn.functional.normalize(weights, dim=1) @ y
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(classes.next_token), reduction="none")
        plain.optimizer.zero_grad()
        (loss * torch.tensor(classes.weights)).sum().backward()
        plain.step(ss.SCHEDULES.member(options.get("schedule", "constant")).share(step / steps), [0.0, 0.0])


def test_a_sweep_over_them_and_refusals() -> None:
    grid = ss.sweep("syn-small", lr_y=1.0, lr_z=1.0, steps=5, schedule=["constant", "cosine"], weight_decay=[0, 0.1])
    assert grid["loss"].sizes["schedule"] == grid["loss"].sizes["weight_decay"] == 2
    for wrong, message in (({"clip": 0}, "clip is 0"), ({"weight_decay": -1}, "weight_decay is -1"),
                           ({"schedule": "steep"}, "unknown schedule")):  # fmt: skip
        with pytest.raises(ss.InputError, match=message):
            ss.train("syn-small", lr_y=1.0, lr_z=1.0, steps=1, **wrong)
