"""Text as people and shells read it."""
