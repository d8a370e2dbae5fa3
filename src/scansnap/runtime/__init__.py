"""Errors, threads, memory, devices, progress, optional dependencies and compiled code."""
