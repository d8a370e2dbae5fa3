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
    from scansnap.claims.verify import verify as verify
    from scansnap.data.classes_file import read_classes as read_classes
    from scansnap.data.classes_file import write_classes as write_classes
    from scansnap.data.named_classes import named_classes as named_classes
    from scansnap.data.positioned_classes import PositionedClasses as PositionedClasses
    from scansnap.data.positioned_classes import near_distinct as near_distinct
    from scansnap.data.sampling import sample_counts as sample_counts
    from scansnap.data.sampling import sample_sequences as sample_sequences
    from scansnap.data.sequence_classes import SequenceClasses as SequenceClasses
    from scansnap.data.synthetic import local_common as local_common
    from scansnap.data.synthetic import single_common as single_common
    from scansnap.data.synthetic import syn_medium as syn_medium
    from scansnap.data.synthetic import syn_small as syn_small
    from scansnap.data.synthetic import synthetic as synthetic
    from scansnap.dynamics.flow import flow as flow
    from scansnap.dynamics.train import train as train
    from scansnap.model.layer import YZTransformer as YZTransformer
    from scansnap.model.regular import RegularTransformer as RegularTransformer
    from scansnap.results import measure as measure
    from scansnap.results.store import load as load
    from scansnap.results.store import save as save
    from scansnap.sweeps.config import read_sweep as read_sweep
    from scansnap.sweeps.sweep import sweep as sweep
    from scansnap.text.corpus.corpus import read_corpus as read_corpus
    from scansnap.text.training.train import train_text as train_text

_HOMES = {
    "SequenceClasses": "data.sequence_classes",
    "PositionedClasses": "data.positioned_classes",
    "near_distinct": "data.positioned_classes",
    "read_classes": "data.classes_file",
    "write_classes": "data.classes_file",
    "sample_counts": "data.sampling",
    "sample_sequences": "data.sampling",
    "synthetic": "data.synthetic",
    "local_common": "data.synthetic",
    "single_common": "data.synthetic",
    "syn_small": "data.synthetic",
    "syn_medium": "data.synthetic",
    "read_corpus": "text.corpus.corpus",
    "YZTransformer": "model.layer",
    "RegularTransformer": "model.regular",
    "train": "dynamics.train",
    "train_text": "text.training.train",
    "flow": "dynamics.flow",
    "verify": "claims.verify",
    "sweep": "sweeps.sweep",
    "read_sweep": "sweeps.config",
    "named_classes": "data.named_classes",
    "save": "results.store",
    "load": "results.store",
    "ScanSnapError": "base.errors",
    "InputError": "base.errors",
    "StoreError": "base.errors",
}

_MODULES = {"measure": "results.measure", "theory": "theory"}

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value = import_module(f"scansnap.{_MODULES[name]}")
    elif name in _HOMES:
        value = getattr(import_module(f"scansnap.{_HOMES[name]}"), name)
    else:
        raise AttributeError(f"module 'scansnap' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
