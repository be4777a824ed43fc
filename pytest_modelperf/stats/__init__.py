"""Intervals and decisions from numbers. Only this package uses scipy."""
