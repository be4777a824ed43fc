"""The `modelperf` command: one module a subcommand; each calls one core function and shows it."""

from pytest_modelperf.cli.main import main

__all__ = ["main"]
