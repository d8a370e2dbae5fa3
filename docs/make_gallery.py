"""Run the examples of docs/gallery.md, and save the picture that each one leaves in `figure`.

python docs/make_gallery.py [name ...]
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
from cycler import cycler
from matplotlib.figure import Figure

from scansnap.figures.style import COLORS

HERE = Path(__file__).parent
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n+!\[[^\]]*\]\(images/gallery/(\w+)\.png\)", re.MULTILINE | re.DOTALL)


def main() -> None:
    target = HERE / "images" / "gallery"
    target.mkdir(exist_ok=True)
    plt.rcParams["axes.prop_cycle"] = cycler(color=COLORS)  # the colors of all other pictures
    for code, name in EXAMPLE.findall((HERE / "gallery.md").read_text()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            names: dict[str, object] = {}
            exec(code, names)
            figure = names["figure"]
            assert isinstance(figure, Figure)
            figure.savefig(target / f"{name}.png", dpi=80, bbox_inches="tight")
            plt.close("all")
            os.chdir(HERE)
        print(name, flush=True)


if __name__ == "__main__":
    main()
