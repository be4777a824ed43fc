"""Rounds of one model, or of several in turn, until there are enough."""
