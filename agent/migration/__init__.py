"""How operators move between boards."""
