"""Why one case is slower or larger than another, as text."""
