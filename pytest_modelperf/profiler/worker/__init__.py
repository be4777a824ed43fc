"""The process in which a case is measured, and the gateway to it."""
