"""The numbers of weights without any model: encoded, described by notes, and drawn from these."""
