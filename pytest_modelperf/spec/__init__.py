"""The settings of a case and of a run: each defined once, and read from all places."""
