"""Sizes for the open dimensions of a model, and values for the inputs that choose a branch."""
