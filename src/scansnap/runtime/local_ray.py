"""A Ray cluster on this machine, for as long as the work lasts, and for nobody else.

Ray's processes listen on all interfaces unless they are told that this machine's address is that of the loopback, as
they are on systems with a firewall that would ask.  Most of them end with the process that started them; its agents do
not, so a guard waits for its end, however it comes, and ends what has the mark of this cluster in its environment.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

from scansnap.runtime.errors import InputError

LOOPBACK = "127.0.0.1"
ON_LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""The variable by which Ray decides between the loopback and all interfaces."""

MARK = "SCANSNAP_CLUSTER"

GUARD = """
import os, pathlib, signal, sys, time
mark = sys.argv[1].encode()
sys.stdin.read()  # until the process that holds the other end has ended
time.sleep(float(sys.argv[2]))  # most end by themselves
for entry in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if mark in (entry / "environ").read_bytes().split(b"\\0"):
            os.kill(int(entry.name), signal.SIGKILL)
    except OSError:
        pass
"""
GRACE_SECONDS = 1.0


@contextlib.contextmanager
def local_ray(ray: Any, **settings: Any) -> Iterator[None]:
    """Start the cluster, and end it."""
    mark = uuid.uuid4().hex
    guard = subprocess.Popen(
        [sys.executable, "-c", GUARD, f"{MARK}={mark}", str(GRACE_SECONDS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with _environment({MARK: mark, ON_LOOPBACK: "0"}), _told_loopback(ray):
            ray.init(include_dashboard=False, **settings)
            if ray.util.get_node_ip_address() != LOOPBACK:
                raise InputError(
                    "this version of Ray listens beyond this machine: start a cluster yourself and give its address."
                )
        yield
    finally:
        with contextlib.suppress(Exception):
            ray.shutdown()
        guard.communicate()


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables for the processes that are started inside."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _told_loopback(ray: Any) -> Iterator[None]:
    """Tell a Ray that was imported before the variable was set."""
    constants = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def output_to_errors() -> Iterator[None]:
    """Send what Ray's code and processes print to the error stream: the output is for results alone."""
    sys.stdout.flush()
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(output, 1)
        os.close(output)
