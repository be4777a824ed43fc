"""Baselines on disk: find, lock, read strictly, plan an update, and write it atomically."""
