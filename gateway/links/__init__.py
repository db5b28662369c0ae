"""Links to other gateways: batches of flows that run on several boards."""
