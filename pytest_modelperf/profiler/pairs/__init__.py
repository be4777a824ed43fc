"""Two models that run in turn: their plans, their parts, their outputs and their layers."""
