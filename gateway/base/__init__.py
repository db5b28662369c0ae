"""What any room of the gateway may use."""
