"""`edgert board`: the two slots of a board, and its updates."""
