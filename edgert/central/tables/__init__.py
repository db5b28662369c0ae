"""Delta tables without Spark: one table and SQL over it, object stores, leases, the registers, and views for people."""
