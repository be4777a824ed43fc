"""Count the cost of a model from its graph alone: exact, and the same on every machine."""
