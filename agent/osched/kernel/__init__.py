"""What the kernel is told, and how it is undone: nice values, EEVDF slices and control groups of threads.

`door` alone changes something; `journal` keeps what was before, on disk.
"""
