"""`python -m pytest_modelperf` is the `modelperf` command."""

from pytest_modelperf.cli import main

main(prog_name="modelperf")
