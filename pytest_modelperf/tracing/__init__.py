"""Records what a program runs: its labels, sessions, inferences and their operators."""

from pytest_modelperf.tracing.profiling import TraceWarning, profile

__all__ = ["TraceWarning", "profile"]
