"""Parts that any package of the gateway may use."""
