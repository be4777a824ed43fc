"""Run the process of a station: pytest up to the call of one test, which then serves orders."""
