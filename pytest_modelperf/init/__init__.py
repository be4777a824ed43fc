"""The models of a project found, and what is missing to test them written into its files."""
