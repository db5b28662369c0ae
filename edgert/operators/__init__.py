"""Operators: the specification and logic of each family in one file, with their base, state and fusion in rooms."""
