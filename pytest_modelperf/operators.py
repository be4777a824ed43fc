"""The former name of `pytest_modelperf.extensions`, from which extensions may still import."""

from pytest_modelperf.extensions import *  # noqa: F403  # all that `__all__` lists there
