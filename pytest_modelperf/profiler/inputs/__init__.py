"""The inputs of a model: given by the user, or made to fit its graph."""
