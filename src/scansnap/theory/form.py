"""The forms in which a formula comes."""

from typing import Literal

Form = Literal["exact", "published"]
"""A formula as it is, and as the paper prints it."""
