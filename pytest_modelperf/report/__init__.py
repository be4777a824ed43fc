"""Rendering records as text. Every renderer here returns a string and writes no file."""
