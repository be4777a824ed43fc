"""Records to text: every renderer here returns a string, and nothing here writes one."""
