"""A system: what is trained.

A system has named parameter blocks, the values they start from, their gradient in closed form, quantities worth
recording, and invariants.  `train`, `flow`, `sweep` and `verify` know nothing else about it, and so one module adds a
system.  Every array has a leading axis of runs: many seeds and rates advance together.

The paper's (Y, Z) is the first system.  It is given by its sequence classes, and has compiled code besides
(`dynamics/yz_tasks.py`).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from scansnap.runtime.errors import InputError, short_repr
from scansnap.systems.quantity import Quantity
from scansnap.validation.options import Options
from scansnap.validation.user_code import Registry, code_digest, is_own

if TYPE_CHECKING:
    from torch import Tensor

Arrays = Mapping[str, NDArray[Any]]
Tensors = Mapping[str, "Tensor"]
Seeds = NDArray[np.uint64]


@dataclass(frozen=True)
class Block:
    """A parameter block: the name of its learning rate, and the names of its axes after the run.

    >>> ss.Block("lr_z", ("token",)).dims
    ('token',)
    """

    rate: str  # the name of its learning rate
    dims: tuple[str, ...] = ()  # its axes after the run
    long_name: str = ""  # what it is, for labels


@dataclass(frozen=True)
class State:
    """R runs of a system at one record: what its quantities are computed from.

    >>> @ss.quantity("token", long_name="largest logit")
    ... def largest(now: ss.State):
    ...     return now.parameters["z"].max(-1)
    >>> largest.dims
    ('token',)
    """

    system: System  # what is trained
    parameters: Arrays  # (R, ...) of each block
    data: Arrays  # (R, ...) what does not move
    loss: NDArray[np.float64]  # (R,)


@dataclass(frozen=True)
class Preset:
    """A named setting: `scansnap train --preset NAME` trains it in seconds.

    >>> ss.Preset("a fast start", train={"lr": 1.0, "steps": 10}).settings
    {}
    """

    about: str  # what it shows, in one line
    settings: Mapping[str, object] = field(default_factory=dict)  # of the system
    train: Mapping[str, object] = field(default_factory=dict)  # options of `train`
    flow: Mapping[str, object] = field(default_factory=dict)  # options of `flow`


@dataclass(frozen=True, kw_only=True)
class System(Options, ABC):
    """What `train`, `flow` and `sweep` advance.  Subclass it, with the settings as fields of a frozen dataclass.

    A run's numbers may depend on its seed alone: draw random numbers from `numpy.random.default_rng(seed)` of each run.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Decay(ss.System):
    ...     "x falls at a rate of its own."
    ...     size: int = 2
    ...     @property
    ...     def blocks(self):
    ...         return {"x": ss.Block("lr", ("entry",))}
    ...     @property
    ...     def coords(self):
    ...         return {"entry": range(self.size)}
    ...     def start(self, seeds):
    ...         return {"x": np.ones((len(seeds), self.size))}
    ...     def gradient(self, parameters, data):
    ...         x = parameters["x"]
    ...         return {"x": -x}, (x**2).sum(-1) / 2
    >>> print(ss.train(Decay(), lr=0.5, steps=2)["loss"].values)
    [[1.     0.25   0.0625]]
    """

    title: ClassVar[str] = ""  # what it is, in one line
    source: ClassVar[str] = ""  # the paper that it is from
    quantities: ClassVar[Sequence[Quantity]] = ()  # recorded by default, besides the loss
    invariants: ClassVar[Sequence[Quantity]] = ()  # constant along the flow
    presets: ClassVar[Mapping[str, Preset]] = {}
    samples: ClassVar[bool] = False  # whether every update has data of its own

    def __post_init__(self) -> None:
        super().__post_init__()
        for part in ("quantities", "invariants"):
            listed = getattr(self, part)
            if not isinstance(listed, tuple | list) or not all(isinstance(each, Quantity) for each in listed):
                raise InputError(
                    f"{type(self).__name__}.{part} is {short_repr(listed)}: give a tuple of quantities, which the "
                    "decorator scansnap.quantity makes, and not of names."
                )

    @property
    @abstractmethod
    def blocks(self) -> Mapping[str, Block]:
        """The parameter blocks by name."""

    @property
    @abstractmethod
    def coords(self) -> Mapping[str, Sequence[Any]]:
        """The labels of every dimension of blocks and quantities."""

    @abstractmethod
    def start(self, seeds: Seeds) -> Arrays:
        """The blocks (R, ...) before the first update, one run for each seed."""

    def data(self, seeds: Seeds, step: int | None) -> Arrays:
        """Arrays (R, ...) that do not move: data, fixed embeddings.

        If the class sets `samples = True`, every update asks for its own with its number; otherwise, and for the flow,
        `step` is None and the arrays are those of the expectation.
        """
        return {}

    @abstractmethod
    def gradient(self, parameters: Tensors, data: Tensors) -> tuple[Tensors, Tensor]:
        """The gradient of J = -loss by each block, along which it moves, and the loss (R,)."""

    @property
    def rates(self) -> tuple[str, ...]:
        """The names of its learning rates."""
        return tuple(dict.fromkeys(block.rate for block in self.blocks.values()))

    @property
    def label(self) -> str:
        """What results call it: its registered name with the settings that are not the defaults."""
        return SYSTEMS.label(self)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hex digits that are equal for equal systems."""
        code = code_digest(type(self)) if is_own(self) else ""
        described = f"{type(self).__qualname__} {json.dumps(self.to_dict(), sort_keys=True)}{code}"
        return hashlib.sha256(described.encode()).hexdigest()[:16]

    @cached_property
    def recordable(self) -> Registry[Quantity]:
        """Everything that can be recorded by name: the loss, the quantities, the invariants and the blocks."""
        known: Registry[Quantity] = Registry("variable to record")
        known.register("loss")(LOSS)
        for quantity in (*self.quantities, *self.invariants):
            known.register(quantity.name)(quantity)
        for name, block in self.blocks.items():
            known.register(name)(_block_quantity(name, block))
        return known


LOSS = Quantity("loss", (), lambda now: now.loss, (), {"long_name": "loss", "units": "1"}, full_precision=True)


def _block_quantity(name: str, block: Block) -> Quantity:
    attributes = {"long_name": block.long_name or name.replace("_", " "), "units": "1"}
    return Quantity(name, block.dims, lambda now: now.parameters[name], (), attributes)


SYSTEMS: Registry[System] = Registry("system", "gradient", "start")
"""Systems by name; `catalog.py` fills it with those of the package."""


def check_system(system: System) -> None:
    """Refuse a system whose parts do not fit together, in one sentence."""
    name, sizes = type(system).__name__, {dim: len(labels) for dim, labels in system.coords.items()}
    if not system.blocks:
        raise InputError(f"{name} has no parameter blocks: give at least one in blocks.")
    started = system.start(np.array([0, 1], np.uint64))
    if set(started) != set(system.blocks):
        raise InputError(
            f"{name}.start gives {', '.join(started) or 'nothing'} and blocks has {', '.join(system.blocks)}: give "
            "the same names."
        )
    for block, values in started.items():
        dims = system.blocks[block].dims
        if missing := [dim for dim in dims if dim not in sizes]:
            raise InputError(f"{name}.blocks['{block}'] has the dimension '{missing[0]}': give its labels in coords.")
        shape = (2, *(sizes[dim] for dim in dims))
        if np.shape(values) != shape:
            raise InputError(
                f"{name}.start gives '{block}' of shape {np.shape(values)} for two seeds: its dimensions have {shape}."
            )


def softmax_residual(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """e_target - softmax(logits) along the last axis, and the loss -ln p_target.

    1 - p is the sum of the other probabilities, never a difference from one: late in training it is far below the
    rounding of p.
    """
    import torch

    index = target[..., None]
    below = logits - logits.detach().amax(-1, keepdim=True)
    odds = below.exp()  # for a few classes faster than log_softmax
    total = odds.sum(-1, keepdim=True)
    others = (odds / total).scatter(-1, index, 0.0)
    rest = others.sum(-1, keepdim=True)
    loss = torch.where(rest < 0.5, -torch.log1p(-rest), total.log() - below.gather(-1, index))
    return (-others).scatter(-1, index, rest), loss.squeeze(-1)
