"""The verbs of the `edgert` command: a file each, or a folder with `verb.py` where one needs several files."""
