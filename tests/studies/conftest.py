"""The example text, which the tests of figures read too."""

from tests.figures.conftest import corpus  # noqa: F401
