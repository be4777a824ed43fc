"""A profile as text, tables, JSON, CSV and pages, and how far its measurement is."""
