"""Performance budgets on ONNX models: a pytest plugin and a command."""

# As `typing` has it; every run of pytest loads this module, and some need no `typing` yet.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pytest_modelperf.tracing import profile

__all__ = ["profile"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # Imported when it is asked for, for the same reason.
    if name == "profile":
        from pytest_modelperf.tracing import profile

        return profile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
