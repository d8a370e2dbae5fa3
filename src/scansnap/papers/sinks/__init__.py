"""Attention sinks: why attention collects on a token that says nothing (Guo et al. 2024)."""

from scansnap.papers.sinks.system import BigramBackcopy as BigramBackcopy
from scansnap.papers.sinks.system import Sink as Sink
