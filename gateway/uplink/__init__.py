"""From the outbox to central."""
