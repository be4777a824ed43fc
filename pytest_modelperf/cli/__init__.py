"""The `modelperf` command: a module per subcommand calls the core and shows the result."""

from pytest_modelperf.cli.main import main

__all__ = ["main"]
