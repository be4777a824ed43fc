"""Performance budgets on ONNX models: a pytest plugin and a command."""

__version__ = "0.1.0"
