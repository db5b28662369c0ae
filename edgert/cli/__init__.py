"""The verbs of the `edgert` command, one file each."""
