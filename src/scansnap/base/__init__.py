"""Shared foundations: errors, checks, options, memory, threads, devices, progress, compiled code."""
