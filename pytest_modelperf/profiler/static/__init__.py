"""What a model costs, counted from its graph alone: exact, and the same on every machine."""
