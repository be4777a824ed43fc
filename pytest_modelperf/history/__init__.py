"""How the cost of models changed over time."""
