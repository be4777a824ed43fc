"""The project that the tests of the plugin run in."""

from tests.plugin.conftest import run

__all__ = ["run"]
