"""The placement problem: its model from raw figures, the cost of an assignment, and a heuristic's budget."""
