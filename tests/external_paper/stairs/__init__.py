"""Linear attention learns regression in stairs (Zhang, Singh, Latham and Saxe, ICML 2025, arXiv 2501.16265)."""

from stairs.system import LinearAttention as LinearAttention
