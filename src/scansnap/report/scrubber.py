"""The data of the page's slider: attention over training."""

from __future__ import annotations

from typing import Any

import numpy as np

from scansnap.data.synthetic import syn_small
from scansnap.dynamics.train import train

STEPS = 100


def scrubber_data() -> dict[str, Any]:
    """Attention of each class at every step, and the loss, of Syn-Small as published at both decoder rates."""
    classes = syn_small()
    runs = train(
        classes, lr_y=[1.0, 10.0], lr_z=1.0, steps=STEPS, momentum=0.9, record=("loss", "attention"), progress=False
    )  # fmt: skip
    panels = []
    for run in range(2):
        for i in range(classes.num_classes):
            ids = classes.support(i)
            values = runs["attention"].isel({"run": run, "class": i}).sel(token=ids).values  # (step, token)
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
