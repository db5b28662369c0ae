"""The flows of this gateway: what runs, who may change it, and how a flow starts, changes and ends."""
