"""Settings shared by all tests."""

from __future__ import annotations

import os

import torch
from hypothesis import HealthCheck, settings

from tests.browser import browser  # noqa: F401
from tests.compiled_once import compiled_once  # noqa: F401
from tests.programs import programs  # noqa: F401

settings.register_profile("scansnap", deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
settings.load_profile("scansnap")
torch.set_num_threads(1)  # tests run side by side
torch.set_warn_always(True)  # not only the first time, so that every test with a warning fails
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # the GPU's kernels, run on the CPU
