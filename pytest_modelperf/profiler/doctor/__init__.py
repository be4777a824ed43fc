"""Measure how noisy a machine is and whether a model's memory grows, and report it."""
