"""The database's file: who may use it, its schema, its commit mark, and the salvage of a damaged one."""
