"""The rules for each operator: one file and one table for each family."""
