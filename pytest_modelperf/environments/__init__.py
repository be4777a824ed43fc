"""Environments with one version of an engine, made when they are needed and kept."""
