"""Find the models of a project, and write what is missing to test them into its files."""
