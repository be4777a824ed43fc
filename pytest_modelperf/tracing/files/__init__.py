"""Files of what ran, told apart and read."""
