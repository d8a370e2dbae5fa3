"""The systems of this package by name.  Each registers itself when its module is imported, which is done here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from scansnap.systems import system

SYSTEMS = system.SYSTEMS
"""Systems by name: `--system`.  The paper's (Y, Z) is given by its classes and is not listed here.

>>> "reversal" in ss.SYSTEMS
True
"""

for path in sorted(Path(__file__).parent.glob("[!_]*.py")):
    if path != Path(__file__):
        import_module(f"scansnap.systems.{path.stem}")
