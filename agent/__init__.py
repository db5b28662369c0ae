"""The agent daemon: what a board can do, and (later) placement across boards."""
