"""The extra that a cluster needs, and the error if it is not installed."""

from __future__ import annotations

from importlib.util import find_spec

from pytest_modelperf.errors import UsageError


def check_cluster_extra(option: str) -> None:
    """Raise UsageError where `distributed` is not installed. `option` is what asks for it."""
    if find_spec("distributed") is None:
        raise UsageError(f"{option} needs distributed: pip install 'pytest-modelperf[cluster]'")
