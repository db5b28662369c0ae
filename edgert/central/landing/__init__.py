"""Landing tables: the checks that a result must pass, its rows as Arrow tables, and the commits that hold them."""
