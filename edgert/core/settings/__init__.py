"""Every setting of the programs, one file per program. Docs and samples are made from here."""
