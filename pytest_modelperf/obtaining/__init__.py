"""Models that exist only when a test needs them: made, fetched, or values of fixtures."""
