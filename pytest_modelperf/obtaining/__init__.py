"""Models that are made, fetched or taken from fixtures when a test needs them."""
