"""The least time that a machine allows a model."""
