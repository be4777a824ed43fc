"""The tables of a profile."""
