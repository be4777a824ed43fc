"""The project to run pytest in is that of the tests of the plugin."""

from tests.plugin.conftest import run

__all__ = ["run"]
