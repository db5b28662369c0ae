"""What is lost, and what is said of it."""
