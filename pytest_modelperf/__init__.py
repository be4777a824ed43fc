"""Performance budgets on ONNX models: a pytest plugin and a command.

This module, `api`, `extensions` and `frames` are public, with the names in their `__all__`. All
other modules are internal: they may change or move in any release.

A traced process loads this module before pytest does. Pytest would warn of that:
PYTEST_DONT_REWRITE
"""

import os

# Same as in `typing`, but not imported: every run of pytest loads this module, and some do not need
# `typing` yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pytest_modelperf.errors import (
        BaselineError,
        BindingError,
        EngineError,
        ExtensionError,
        MeasureError,
        ModelError,
        ModelPerfError,
        OutputError,
        UsageError,
    )
    from pytest_modelperf.labels import label
    from pytest_modelperf.profiler.machine.describe import machine_key
    from pytest_modelperf.spec.case_words import BudgetWords, CaseWords
    from pytest_modelperf.testing.fixture import ModelPerf
    from pytest_modelperf.text.version import __version__
    from pytest_modelperf.tracing import TraceWarning, trace

__all__ = [
    "BaselineError",
    "BindingError",
    "BudgetWords",
    "CaseWords",
    "EngineError",
    "ExtensionError",
    "MeasureError",
    "ModelError",
    "ModelPerf",
    "ModelPerfError",
    "OutputError",
    "TraceWarning",
    "UsageError",
    "__version__",
    "label",
    "machine_key",
    "trace",
]

# The modules of all names that are not errors.
_HOMES = {
    "BudgetWords": "spec.case_words",
    "CaseWords": "spec.case_words",
    "ModelPerf": "testing.fixture",
    "TraceWarning": "tracing",
    "__version__": "text.version",
    "label": "labels",
    "machine_key": "profiler.machine.describe",
    "trace": "tracing",
}


def __getattr__(name: str) -> object:
    # Imported only when it is used, for the same reason.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    # Cached, because a program may use `label` in each of its calls.
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__


if os.environ.get("MODELPERF_TRACE"):
    # Its import starts the tracing, even if no hook is installed.
    import pytest_modelperf.tracing.autostart  # noqa: F401
