"""How a page is made: its shell, its charts, its tables."""
