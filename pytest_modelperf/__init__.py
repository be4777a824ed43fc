"""Performance budgets on ONNX models: a pytest plugin and a command."""

import os

# As `typing` has it; every run of pytest loads this module, and some need no `typing` yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pytest_modelperf.text.version import __version__
    from pytest_modelperf.tracing import trace

__all__ = ["__version__", "trace"]


def __getattr__(name: str) -> object:
    # Imported when it is asked for, for the same reason.
    if name == "trace":
        from pytest_modelperf.tracing import trace

        return trace
    if name == "__version__":
        from pytest_modelperf.text.version import __version__

        return __version__
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if os.environ.get("MODELPERF_TRACE"):
    # Its import begins the tracing, also where no hook is installed.
    import pytest_modelperf.tracing.autostart  # noqa: F401
