"""A case and a run: each setting defined once, and read for every face."""
