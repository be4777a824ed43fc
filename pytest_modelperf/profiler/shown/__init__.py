"""Show a profile as text, tables, JSON, CSV and pages, and the progress of measuring it."""
