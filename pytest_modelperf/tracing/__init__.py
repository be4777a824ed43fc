"""Records what a program runs: its labels, sessions, inferences and their operators."""

# As in `typing`, which is not imported: every Python of a traced program loads this module at its
# start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pytest_modelperf.tracing.program_trace import TraceWarning, trace

__all__ = ["TraceWarning", "trace"]


def __getattr__(name: str) -> object:
    # Imported on first use: most of these Pythons record nothing.
    if name in __all__:
        from pytest_modelperf.tracing import program_trace

        return getattr(program_trace, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
