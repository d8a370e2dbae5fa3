"""What the paper says of linear attention, against the flow and against sampled contexts."""

import numpy as np

import scansnap as ss
from stairs.system import LinearAttention
from stairs.theory import plateaus

ABOUT = {"where": "Zhang et al., ICML 2025", "depends_on": "nothing"}


@ss.claim(**ABOUT, wrong_factor=1.1)
def stairs_population_loss(check: ss.Check) -> None:
    """The population loss is the mean loss over contexts.

    Check: 400,000 sampled contexts of four pairs at random parameters; 3% are four standard errors.
    """
    system, rng = LinearAttention(pairs=4, init=1.0), check.rng()
    start, data = system.start(check.seeds(1)), system.data([0], None)
    x = rng.normal(size=(400_000, system.pairs + 1, system.modes)) * np.sqrt(np.diagonal(data["covariance"][0]))
    y = (x @ rng.normal(size=(400_000, system.modes, 1)))[..., 0]
    b = (x[:, :-1] * y[:, :-1, None]).mean(1)
    errors = y[:, -1] - (b @ system.weights(start)[0] * x[:, -1]).sum(-1)
    check.equal("loss", system.gradient(start, data)[1], (errors**2).mean() / 2, tolerance=0.03)


@ss.claim(**ABOUT)
def stairs_one_plateau_each(check: ss.Check) -> None:
    """Separate heads learn one mode after the other, with a plateau of the loss before each.

    Check: Six flows from 0.001: the loss midway in ln t between two modes whose times differ by a factor of two.
    """
    system, times = LinearAttention(init=1e-3), np.geomspace(1, 1e6, 600)
    run = ss.flow(system, lr=1.0, times=times, seeds=check.seeds(6), record=("loss", "learned"), progress=False)
    place = (run["learned"].values > 0.5).argmax(1)  # (run, mode)
    check.positive("places of modes in order", np.diff(place, axis=1))
    apart = np.diff(np.log(times)[place], axis=1) > np.log(2)
    loss = np.take_along_axis(run["loss"].values, (place[:, :-1] + place[:, 1:]) // 2, axis=1)
    expected = plateaus(system.data([0], None)["covariance"][0], system.pairs)
    check.equal("loss on the plateaus", (apart * expected[1:-1])[apart], loss[apart], tolerance=0.005)
    check.equal("loss at the end", expected[-1], run["loss"].values[:, -1], tolerance=1e-6)


@ss.claim(**ABOUT)
def stairs_one_fall(check: ss.Check) -> None:
    r"""Merged heads learn in one fall, after a time of $\ln(1/C)/|\Lambda^2|$ and a constant.

    Check: Starts of 1e-4 and 1e-6, with C the part along the direction (v, U) = (1, Λ²/|Λ²|) that grows fastest.
    """
    rows, seeds, times = [], check.seeds(4), np.linspace(0.1, 30, 3000)
    for init in (1e-4, 1e-6):
        system = LinearAttention(keys="merged", init=init)
        start, square = system.start(seeds), system.data([0], None)["covariance"][0] ** 2
        along = (start["v"] + (start["U"] * square).sum((-2, -1)) / np.linalg.norm(square)) / 2
        loss = ss.flow(system, lr=1.0, times=times, seeds=seeds, record="loss", progress=False)["loss"].values
        fallen = (loss[:, :1] - loss) / (loss[:, :1] - plateaus(square**0.5, system.pairs)[-1])
        wait = -np.log(np.linalg.norm(along, axis=1)) / np.linalg.norm(square)
        rows += [[w, *np.interp((0.1, 0.5, 0.9), row, times)] for w, row in zip(wait, fallen, strict=True)]
    wait, early, half, late = np.transpose(rows)
    check.equal("time of half of the fall", half[0] - wait[0] + wait, half, tolerance=1e-3)
    check.equal("time from 10% to 90% of the fall", (late - early)[0], late - early, tolerance=1e-3)
