"""Find which options of a session make a model faster on this machine."""
