"""The tables of a flow's document that are about the whole flow: delivery, full outbox, latency, errors."""
