"""scansnap: the training dynamics of attention, exact and executable.

The system of "Scan and Snap: Understanding Training Dynamics and Token Composition in 1-layer Transformer" (Tian, Wang,
Chen and Du, NeurIPS 2023).  Names are imported when first used, so that `import scansnap` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scansnap import theory as theory
    from scansnap.base.errors import InputError as InputError
    from scansnap.base.errors import ScanSnapError as ScanSnapError
    from scansnap.base.errors import StoreError as StoreError
    from scansnap.claims.check import Check as Check
    from scansnap.claims.check import Curve as Curve
    from scansnap.claims.check import Setting as Setting
    from scansnap.claims.check import assumed_setting as assumed_setting
    from scansnap.claims.claim import Claim as Claim
    from scansnap.claims.claim import Verdict as Verdict
    from scansnap.claims.claim import claim as claim
    from scansnap.claims.collect import read_claims as read_claims
    from scansnap.claims.verify import verify as verify
    from scansnap.data.classes_file import read_classes as read_classes
    from scansnap.data.classes_file import write_classes as write_classes
    from scansnap.data.named_classes import NAMED as NAMED
    from scansnap.data.named_classes import named_classes as named_classes
    from scansnap.data.positioned_classes import PositionedClasses as PositionedClasses
    from scansnap.data.positioned_classes import near_distinct as near_distinct
    from scansnap.data.sampling import sample_counts as sample_counts
    from scansnap.data.sampling import sample_sequences as sample_sequences
    from scansnap.data.sequence_classes import SequenceClasses as SequenceClasses
    from scansnap.data.source import DataSource as DataSource
    from scansnap.data.source import Draw as Draw
    from scansnap.data.synthetic import local_common as local_common
    from scansnap.data.synthetic import single_common as single_common
    from scansnap.data.synthetic import syn_medium as syn_medium
    from scansnap.data.synthetic import syn_small as syn_small
    from scansnap.data.synthetic import synthetic as synthetic
    from scansnap.dynamics.flow import flow as flow
    from scansnap.dynamics.gradient_check import compare_gradients as compare_gradients
    from scansnap.dynamics.options import FlowOptions as FlowOptions
    from scansnap.dynamics.options import TrainOptions as TrainOptions
    from scansnap.dynamics.published import PUBLISHED as PUBLISHED
    from scansnap.dynamics.published import Experiment as Experiment
    from scansnap.dynamics.train import train as train
    from scansnap.dynamics.update_rules import OPTIMIZERS as OPTIMIZERS
    from scansnap.dynamics.update_rules import SGD as SGD
    from scansnap.dynamics.update_rules import Adam as Adam
    from scansnap.dynamics.update_rules import Update as Update
    from scansnap.dynamics.update_rules import UpdateRule as UpdateRule
    from scansnap.figures.phase_diagram import phase_diagram as phase_diagram
    from scansnap.figures.recipe import FigureRecipe as FigureRecipe
    from scansnap.model.architecture import Addition as Addition
    from scansnap.model.attention import ATTENTION_MAPS as ATTENTION_MAPS
    from scansnap.model.attention import AttentionMap as AttentionMap
    from scansnap.model.layer import YZTransformer as YZTransformer
    from scansnap.model.normalization import NORMALIZATIONS as NORMALIZATIONS
    from scansnap.model.normalization import Normalization as Normalization
    from scansnap.model.regular import RegularTransformer as RegularTransformer
    from scansnap.results import measure as measure
    from scansnap.results.quantities import QUANTITIES as QUANTITIES
    from scansnap.results.quantities import Quantity as Quantity
    from scansnap.results.quantities import quantity as quantity
    from scansnap.results.snapshot import Snapshot as Snapshot
    from scansnap.results.store import load as load
    from scansnap.results.store import save as save
    from scansnap.sweeps.config import read_experiment as read_experiment
    from scansnap.sweeps.config import read_sweep as read_sweep
    from scansnap.sweeps.config import write_experiment as write_experiment
    from scansnap.sweeps.sweep import sweep as sweep
    from scansnap.text.corpus.corpus import read_corpus as read_corpus
    from scansnap.text.training.options import TextOptions as TextOptions
    from scansnap.text.training.train import train_text as train_text

_HOMES = {
    "base.errors": ("InputError", "ScanSnapError", "StoreError"),
    "claims.check": ("Check", "Curve", "Setting", "assumed_setting"),
    "claims.claim": ("Claim", "Verdict", "claim"),
    "claims.collect": ("read_claims",),
    "claims.verify": ("verify",),
    "data.classes_file": ("read_classes", "write_classes"),
    "data.named_classes": ("NAMED", "named_classes"),
    "data.positioned_classes": ("PositionedClasses", "near_distinct"),
    "data.sampling": ("sample_counts", "sample_sequences"),
    "data.sequence_classes": ("SequenceClasses",),
    "data.source": ("DataSource", "Draw"),
    "data.synthetic": ("local_common", "single_common", "syn_medium", "syn_small", "synthetic"),
    "dynamics.flow": ("flow",),
    "dynamics.gradient_check": ("compare_gradients",),
    "dynamics.options": ("FlowOptions", "TrainOptions"),
    "dynamics.published": ("PUBLISHED", "Experiment"),
    "dynamics.train": ("train",),
    "dynamics.update_rules": ("OPTIMIZERS", "SGD", "Adam", "Update", "UpdateRule"),
    "figures.phase_diagram": ("phase_diagram",),
    "figures.recipe": ("FigureRecipe",),
    "model.architecture": ("Addition",),
    "model.attention": ("ATTENTION_MAPS", "AttentionMap"),
    "model.layer": ("YZTransformer",),
    "model.normalization": ("NORMALIZATIONS", "Normalization"),
    "model.regular": ("RegularTransformer",),
    "results.quantities": ("QUANTITIES", "Quantity", "quantity"),
    "results.snapshot": ("Snapshot",),
    "results.store": ("load", "save"),
    "sweeps.config": ("read_experiment", "read_sweep", "write_experiment"),
    "sweeps.sweep": ("sweep",),
    "text.corpus.corpus": ("read_corpus",),
    "text.training.options": ("TextOptions",),
    "text.training.train": ("train_text",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = {"measure": "results.measure", "theory": "theory"}

__all__ = sorted([*_HOME_OF, *_MODULES])


def __getattr__(name: str) -> Any:
    value: Any
    if name in _MODULES:
        value = import_module(f"scansnap.{_MODULES[name]}")
    elif name in _HOME_OF:
        value = getattr(import_module(f"scansnap.{_HOME_OF[name]}"), name)
    elif name == "__version__":
        from importlib.metadata import version

        value = version("scansnap")
    else:
        raise AttributeError(f"module 'scansnap' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
