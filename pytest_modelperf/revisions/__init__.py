"""A model as it was in a commit of git."""
