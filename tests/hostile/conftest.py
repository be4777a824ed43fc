"""The project that the tests of the plugin run in."""

from tests.testing.conftest import run

__all__ = ["run"]
