"""Measure how much time a change of a model would save."""
