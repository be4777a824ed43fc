"""The making of an HTML page: its shell, its charts, its tables."""
