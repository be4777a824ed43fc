"""What is known of each operator: one file and one table for each family."""
