"""The data of the page's slider: attention over training."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scansnap.data.synthetic import syn_small
from scansnap.dynamics.published import SYN_SMALL
from scansnap.dynamics.train import train
from scansnap.figures.fig_4 import LR_Y


def scrubber_data() -> dict[str, Any]:
    """Attention of each class at every step, and the loss, of Syn-Small as published at both decoder rates."""
    classes = syn_small()
    runs = train(classes, replace(SYN_SMALL, lr_y=LR_Y, record_every=1, record=("loss", "attention")), progress=False)
    attention = runs["attention"].isel(layer=0, head=0)
    panels = []
    for run in range(len(LR_Y)):
        for i in range(classes.num_classes):
            ids = classes.support(i)
            values = attention.isel({"run": run, "class": i}).sel(token=ids).values  # (step, token)
            panels.append(
                {
                    "title": f"η_Y = {float(runs['lr_y'][run]):g}, next token {int(classes.next_token[i])}",
                    "tokens": [classes.name(int(token)) for token in ids],
                    "distinct": np.isin(ids, classes.distinct_tokens(i)).tolist(),
                    "attention": np.round(values, 4).tolist(),
                    "loss": np.round(runs["loss"].values[run], 4).tolist(),
                }
            )
    peak = max(max(map(max, panel["attention"])) for panel in panels)
    return {"steps": runs["step"].values.tolist(), "most": float(peak), "panels": panels}
