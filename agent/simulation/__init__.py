"""A fleet on a virtual clock: the product's own agents on boards, links and gateways that are simulated."""
