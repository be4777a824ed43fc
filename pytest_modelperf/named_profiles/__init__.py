"""Profiles kept under names: where they lie, strict reading, atomic writing, two side by side."""
