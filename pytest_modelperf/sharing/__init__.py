"""A model shared without its weights: made, compared with the original, and described."""
