"""Figure 11: recall of distinct tokens against the threshold, changing eta_Y/eta_Z; `recall.py` defines it."""

from __future__ import annotations

from scansnap.figures.recall import entropy_trends, recall_figure

FIGURE = recall_figure(
    "11", along="lr_y_over_lr_z", fixed=1.0, slower="A smaller η_Y/η_Z", falls=False, more_trends=entropy_trends
)
