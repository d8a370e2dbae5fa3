"""A map of the attention of one class over time: tokens upward, time to the right."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import Normalize

from scansnap.figures.plain_text import plain
from scansnap.figures.style import label_powers

NAME = 24
"""The most characters of a token's name."""

ABOVE = ("distinct", "favored")


def heatmap(
    axes: Axes,
    attention: xr.DataArray,
    axis: str,
    top: float | Normalize,
    *,
    log: bool | None = None,
    name_kinds: bool = True,
) -> QuadMesh:
    """Draw the tokens of one class against time, common tokens below, distinct or favored ones above.

    `attention` has the dimensions `token` and `axis` and the coordinates `token_kind` and `token_name`; tokens without
    attention are left out.  `top` is the value of the brightest color, or how values become colors.  Time is
    logarithmic, and leaves out its zero, in flows and where `log` says so.
    """
    present = (attention > 0).any(axis).values
    order = np.lexsort((np.arange(attention.sizes["token"]), np.isin(attention["token_kind"].values, ABOVE)))
    order = order[present[order]]
    values = attention.isel(token=order).transpose("token", axis).values
    times = attention[axis].values.astype(float)
    if log or (log is None and axis == "time"):
        values, times = values[:, times > 0], times[times > 0]
        axes.set_xscale("log")
        label_powers(axes.xaxis, times)
    norm = Normalize(0.0, top) if isinstance(top, float) else top
    image = axes.pcolormesh(
        times, np.arange(len(order)), values, cmap="cividis", norm=norm, shading="nearest", rasterized=True
    )
    kinds = attention["token_kind"].values[order]
    for kind in dict.fromkeys(kinds) if name_kinds else ():
        rows = np.flatnonzero(kinds == kind)
        if len(rows):
            axes.text(1.01, rows.mean(), kind, transform=axes.get_yaxis_transform(), va="center", fontsize=8)
            if rows[0]:
                axes.axhline(rows[0] - 0.5, color="white", linewidth=1)
    named = np.arange(len(order))[:: -max(1, len(order) // 10)]  # from above, where the winners are
    names = [plain(name, NAME) for name in attention["token_name"].values[order][named]]
    axes.set_yticks(named, names, fontsize=7)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_ylabel("token", fontsize=9)
    return image
