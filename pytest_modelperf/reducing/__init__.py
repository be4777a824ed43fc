"""Reduce a slowdown to the smallest pair of models that still shows it."""
