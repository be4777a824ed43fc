"""Records as JSON, with the keys that others rely on: an unknown value is null."""
