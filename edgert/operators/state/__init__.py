"""State of operators: keys and groups in bounded memory, aggregates, and the division of rows by key."""
