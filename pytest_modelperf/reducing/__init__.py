"""A slowdown reduced to the smallest pair of models that still shows it."""
