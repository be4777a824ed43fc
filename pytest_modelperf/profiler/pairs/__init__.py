"""Run two models in turn, and compare their plans, parts, outputs and layers."""
