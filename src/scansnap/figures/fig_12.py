"""Figure 12: recall of distinct tokens against the threshold, changing eta_Z; `recall.py` defines it."""

from __future__ import annotations

from scansnap.figures.recall import recall_figure

FIGURE = recall_figure("12", along="lr_z", fixed=2.0, slower="A larger η_Z", falls=True)
