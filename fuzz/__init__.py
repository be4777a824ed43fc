"""Coverage-guided fuzzing of what reads files: see README.md beside this."""
