"""Two versions of a flow, compared: which operators are the same, and what becomes of their state."""
