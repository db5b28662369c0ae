"""The agent daemon: what a board can do, and where the operators of the fleet's flows run."""
