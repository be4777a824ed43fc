"""A model shared without its weights: made, run beside the original one, and described."""
