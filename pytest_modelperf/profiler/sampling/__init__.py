"""Rounds taken of one model or of several in turn, until it is enough."""
