"""Text for people and shells."""
