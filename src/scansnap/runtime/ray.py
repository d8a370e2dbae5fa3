"""Tasks on a Ray cluster: one of this machine alone, which lasts as long as the work, or one that is running already.

By default Ray's processes listen on all interfaces, and run what anybody sends.  The cluster of this machine therefore
listens on the loopback only.  If this process is killed, the last processes of that cluster end within a minute or two.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from scansnap.runtime.errors import InputError, brief
from scansnap.runtime.machine import import_optional

LOOPBACK = "127.0.0.1"
LOOPBACK_VARIABLE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""If it is "0" when Ray is imported, Ray listens on the loopback, as it does on systems with a firewall that asks."""

Item = TypeVar("Item")


@contextlib.contextmanager
def ray_cluster(cluster: str) -> Iterator[Any]:
    """The module `ray`, connected: "ray" starts a cluster on this machine, anything else is an address.

    A connection that exists is used as it is.  What Ray prints goes to the error stream.
    """
    if cluster == "ray":
        os.environ.setdefault(LOOPBACK_VARIABLE, "0")
    ray = import_optional("ray", what="cluster", package="Ray", extra="cluster")
    if ray.is_initialized():
        yield ray
        return
    with contextlib.redirect_stdout(sys.stderr):
        try:
            ray.init(
                address="local" if cluster == "ray" else cluster,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **({"include_dashboard": False} if cluster == "ray" else {}),
            )
        except Exception as error:
            raise InputError(f"no Ray cluster answers at '{cluster}': {brief(error)}") from None
        try:
            if cluster == "ray" and ray.util.get_node_ip_address() != LOOPBACK:
                raise InputError(
                    "Ray was imported before and would listen beyond this machine: set the environment variable "
                    f"{LOOPBACK_VARIABLE}=0 first, or start a cluster yourself and give its address."
                )
            yield ray
        finally:
            ray.shutdown()


def run_on_ray(
    ray: Any, function: Callable[..., Any], items: Iterable[Item], *shared: Any, retries: int, gpus: int = 0
) -> Iterator[tuple[Item, Any]]:
    """Yield each item with `function(item, *shared)`, or with its error, in order of arrival.

    A task takes one core and `gpus` GPUs.  If its worker is lost, it is started again, up to `retries` times.  At most
    twice as many tasks are in flight as the cluster has cores.
    """
    task = ray.remote(function).options(num_cpus=1, num_gpus=gpus, max_retries=retries, retry_exceptions=False)
    references = [ray.put(value) for value in shared]
    most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting, running = iter(items), dict[Any, Item]()
    while True:
        for item in waiting:
            running[task.remote(item, *references)] = item
            if len(running) >= most:
                break
        if not running:
            return
        (done, *_), _ = ray.wait(list(running), num_returns=1)
        item = running.pop(done)
        try:
            yield item, ray.get(done)
        except ray.exceptions.RayError as error:
            yield item, getattr(error, "cause", None) or error  # the task's own error, without Ray's traceback
