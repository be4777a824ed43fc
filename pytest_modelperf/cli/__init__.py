"""The `modelperf` command.

Each subcommand has a module that calls the core and shows the result.
"""

from pytest_modelperf.cli.main import main

__all__ = ["main"]
