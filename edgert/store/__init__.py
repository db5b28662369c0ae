"""The one database of a gateway, on layers of tables; its file, the outbox and the state of flows have rooms."""
