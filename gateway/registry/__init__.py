"""What runs on this gateway, and from which checkpoint it goes on."""
