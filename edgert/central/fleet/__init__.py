"""The fleet job: Spark merges the contributions of landing tables into one fleet table per flow."""
