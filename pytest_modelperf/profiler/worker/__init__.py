"""The process in which a case is measured, and the way to it."""
