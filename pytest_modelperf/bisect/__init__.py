"""The version that made a model slower, found by halving a range: an engine's or the model's."""
