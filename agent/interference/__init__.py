"""Which instance is about to be disturbed, and which board it should move to (TPDS 2017, section 4)."""
