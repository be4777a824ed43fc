"""Sizes for the open dimensions of a model, and values for inputs that choose a branch."""
