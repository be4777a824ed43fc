"""Profiles kept under names."""
