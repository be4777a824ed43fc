"""Baselines on disk: finding, locking and reading them, planning an update, and writing it."""
