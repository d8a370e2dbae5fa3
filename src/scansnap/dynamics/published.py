"""Settings by name: those of the published experiments, and one that shows scan and snap best.

The published ones come from the paper, its poster and the authors' run logs.  Their synthetic runs have batches of 128
sequences of 128 tokens and 100 updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from scansnap.data.named_classes import named_classes
from scansnap.data.sequence_classes import SequenceClasses
from scansnap.dynamics.options import FlowOptions, TrainOptions
from scansnap.dynamics.update_rules import SGD
from scansnap.runtime.errors import InputError


@dataclass(frozen=True)
class Experiment:
    """Classes by name, and the options to train on them: `train(experiment.classes, **vars(experiment.options))`.

    >>> published = ss.PUBLISHED["syn-small"]
    >>> run = ss.train(published.classes, **vars(published.options))
    >>> run.sizes["step"]
    51
    """

    about: str
    classes_name: str
    options: TrainOptions

    @property
    def classes(self) -> SequenceClasses:
        """The training data."""
        return named_classes(self.classes_name).classes

    def flow_options(self, times: tuple[float, ...]) -> FlowOptions:
        """The same setting as a flow: its rates, start and layer."""
        if not isinstance(self.options.rule, SGD):
            raise InputError(
                f"this setting is trained by {self.options.optimizer}, but flow and verify are about SGD: use scansnap "
                "train, or another preset."
            )
        return FlowOptions.of(self.options, times=times)


SYN_SMALL = TrainOptions(lr_y=1.0, lr_z=1.0, steps=100, momentum=0.9, record_every=2)
"""Figure 4, left."""

SYN_MEDIUM = replace(SYN_SMALL, lr_y=2.0, init="uniform")
"""One cell of Figures 6, 11 and 12."""

FIRST = "scan-and-snap"
"""The setting that `scansnap train` shows by default."""

PUBLISHED: Mapping[str, Experiment] = MappingProxyType(
    {
        FIRST: Experiment(
            "what `scansnap train` shows by default: the data of Figure 4 at larger rates",
            "syn-small",
            replace(SYN_SMALL, lr_y=10.0, lr_z=20.0, steps=60, record_every=1),
        ),
        "syn-small": Experiment(
            "Figure 4, left: two queries, one next token each; SGD with momentum", "syn-small", SYN_SMALL
        ),
        "syn-small-fast-decoder": Experiment(
            "Figure 4, right: the same with a ten times faster decoder", "syn-small", replace(SYN_SMALL, lr_y=10.0)
        ),
        "syn-small-adam": Experiment(
            "Figure 5, middle: Adam at rate 0.5",
            "syn-small",
            replace(SYN_SMALL, optimizer="adam", momentum=None, lr_y=0.5, lr_z=0.5),
        ),
        "syn-medium": Experiment(
            "Figure 6, one cell: three queries, two next tokens each, random start", "syn-medium-3", SYN_MEDIUM
        ),
        "single-common": Experiment(
            "Section 6: ten classes of one query with a single common token, M = 1000",
            "single-common",
            TrainOptions(lr_y=0.5, lr_z=0.05, steps=2000, batch_size=None, seq_len=float("inf"), record_every=20),
        ),
    }
)
"""The settings that have a name.

>>> ss.PUBLISHED["syn-small"].options.momentum
0.9
"""
