"""Identity, settings and keys of boards: the provisioning file, and what a board does with it."""
