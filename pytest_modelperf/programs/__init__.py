"""Programs: Python code with models in it, judged against the commit that was accepted."""
