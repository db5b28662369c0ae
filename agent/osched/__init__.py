"""OS scheduling (Lachesis, Middleware'21): metrics → policy → transformation → normaliser → translator → door.

All files but `journal`, `cgroups`, `slices`, `door`, `scheduler` and `component` are pure: they turn values
into values. `door` is the one place that changes the kernel's scheduling of a thread.
"""
