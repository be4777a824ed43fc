"""The inputs that a model runs on: given by the user, or made to fit its graph."""
