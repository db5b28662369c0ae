"""Where flows run: in this process, or in slots."""
