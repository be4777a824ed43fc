"""Profiles that somebody has in a file: ONNX Runtime's own, and those that were stored."""
