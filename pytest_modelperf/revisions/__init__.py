"""The version of a model in a commit of git."""
