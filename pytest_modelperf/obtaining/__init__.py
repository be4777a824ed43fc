"""Models that do not exist until a test needs them: made, fetched, or the value of a fixture."""
