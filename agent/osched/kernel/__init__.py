"""Changes of the kernel's scheduling, and their undoing: nice values, EEVDF slices and control groups of threads.

`door` alone changes something; `journal` keeps what was before, on disk.
"""
