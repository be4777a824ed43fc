"""Make a model without its weights, compare it with the original, and describe it."""
