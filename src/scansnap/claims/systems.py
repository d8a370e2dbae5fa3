"""Claims that every system makes: its gradient is that of its loss, and its invariants are constant along its flow."""

from __future__ import annotations

from functools import partial

import numpy as np

from scansnap.claims.check import Check
from scansnap.claims.claim import Claim, claim
from scansnap.dynamics.flow import flow
from scansnap.dynamics.train import train
from scansnap.runtime.machine import needs_torch
from scansnap.systems.catalog import SYSTEMS
from scansnap.systems.system import System

system_claim = partial(claim, depends_on="nothing")
"""Makes a claim about a system, which does not depend on the classes of (Y, Z)."""

quiet_flow, quiet_train = partial(flow, progress=False), partial(train, progress=False)
"""`flow` and `train` inside a check or a figure, which shows its own progress."""

SEEDS = 5
TIMES = (0.0, 0.1, 1.0, 10.0)


def general_claims(system: System) -> list[Claim]:
    """That the gradient is the loss's, and one claim for each invariant."""
    registered = SYSTEMS.label(system).split("(")[0].replace("-", "_").lower()
    name = registered if registered.isidentifier() else type(system).__name__.lower()

    def gradient(check: Check) -> None:
        """Check: The closed form is compared with autograd of the loss, at the start and at random parameters near
        it.
        """
        with needs_torch("the gradient of a system"):
            import torch
        seeds = np.array(check.seeds(SEEDS), np.uint64)
        rng, start = check.rng(), system.start(seeds)
        data = {key: torch.as_tensor(np.asarray(values)) for key, values in system.data(seeds, None).items()}
        for label, size in (("at the start", 0.0), ("near it", 0.1)):
            moved = {key: np.asarray(v, np.float64) + size * rng.normal(size=np.shape(v)) for key, v in start.items()}
            parameters = {key: torch.as_tensor(values).requires_grad_() for key, values in moved.items()}
            closed, loss = system.gradient(parameters, data)
            by_autograd = torch.autograd.grad(loss.sum(), list(parameters.values()))
            for key, slope in zip(parameters, by_autograd, strict=True):
                check.equal(f"{key}, {label}", closed[key].detach().numpy(), -slope.numpy(), tolerance=1e-10)

    gradient.__name__ = f"{name}_gradient"
    statement = f"The gradient of {system.label} is that of its loss."
    made = [system_claim(where="its definition", statement=statement)(gradient)]
    for invariant in system.invariants:

        def constant(check: Check, quantity: str = invariant.name) -> None:
            """Conditions: all learning rates are equal

            Check: Its values along the flow are compared with those at the start.
            """
            rates = dict.fromkeys(system.rates, 1.0)
            run = quiet_flow(system, **rates, times=TIMES, seeds=check.seeds(SEEDS), record=(quantity,))
            values = run[quantity].values
            scale = max(float(np.abs(values).max()), 1e-3)
            check.at_most("largest change over its size", np.abs(values - values[:, :1]).max() / scale, 1e-6)

        constant.__name__ = f"{name}_{invariant.name}"
        statement = f"Along the flow of {system.label}, {invariant.attributes['long_name']} is constant."
        made.append(system_claim(where="its definition", statement=statement)(constant))
    return made
