"""Numbers of weights apart from any model: encoded, described by notes, drawn from notes."""
