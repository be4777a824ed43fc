"""Judge programs, Python code with models in it, against the accepted commit."""
