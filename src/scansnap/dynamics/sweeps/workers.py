"""Where shards run: in this process, or on a Ray cluster.

Both take shards and yield each with its outcome, in any order: arrays, or the error that stopped it after all retries.
Where a shard runs cannot change its numbers: a run depends only on its seed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from scansnap.dynamics.sweeps import shards as shards_module
from scansnap.dynamics.sweeps.shards import Arrays, Shard
from scansnap.runtime.errors import InputError, brief
from scansnap.runtime.local_ray import local_ray, output_to_errors

Outcome = tuple[Shard, Arrays | Exception]
Item = TypeVar("Item")


def in_process(shards: Iterable[Shard], retries: int) -> Iterator[Outcome]:
    """One shard after another; each uses all cores by itself."""
    for shard in shards:
        for attempt in range(retries + 1):
            try:
                yield shard, shards_module.run_shard(shard)
                break
            except InputError:
                raise  # trying again would not help
            except Exception as error:
                if attempt == retries:
                    yield shard, error


@contextlib.contextmanager
def ray_cluster(cluster: str) -> Iterator[Any]:
    """Ray, connected: "ray" starts a local cluster for as long as the work lasts, anything else is an address."""
    try:
        import ray
    except ImportError:
        raise InputError("cluster needs Ray, which is not installed here: pip install 'scansnap[cluster]'.") from None
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with contextlib.ExitStack() as stack:
        stack.enter_context(output_to_errors())
        try:
            if cluster == "ray":
                stack.enter_context(local_ray(ray, **settings))
            else:
                ray.init(address=cluster, **settings)
                stack.callback(ray.shutdown)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"no Ray cluster answers at '{cluster}': {brief(error)}") from None
        yield ray


def on_ray(ray: Any, shards: Iterable[Shard], retries: int, uses_gpu: bool) -> Iterator[Outcome]:
    """On a cluster; Ray restarts the shard of a lost worker, and a shard takes one core, or one GPU."""
    task = ray.remote(shards_module.run_shard).options(
        num_cpus=1, num_gpus=1 if uses_gpu else 0, max_retries=retries, retry_exceptions=True
    )
    yield from as_they_come(ray, task.remote, shards)


def as_they_come(ray: Any, start: Callable[[Item], Any], items: Iterable[Item]) -> Iterator[tuple[Item, Any]]:
    """Each item with its result, or its error, in order of arrival; `start` starts the work on an item.

    At most twice as many are in flight as the cluster can run at once.
    """
    waiting = iter(items)
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    running: dict[Any, Item] = {}
    while True:
        for item in waiting:
            running[start(item)] = item
            if len(running) >= most:
                break
        if not running:
            return
        (done, *_), _ = ray.wait(list(running), num_returns=1)
        item = running.pop(done)
        try:
            yield item, ray.get(done)
        except ray.exceptions.RayError as error:
            yield item, error
