"""The studies, and the programs that write their pages, as modules."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "studies"), str(ROOT / "docs")]
