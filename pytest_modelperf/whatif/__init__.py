"""What a model would gain by a change, measured."""
