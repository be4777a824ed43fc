"""Find the version of an engine or a model that made the model slower, by halving a range."""
