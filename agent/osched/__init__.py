"""OS scheduling (Lachesis, Middleware'21): metrics → policy → transformation → normaliser → translator → door.

`policy`, `cooperation`, `rules`, `transformation`, `normalise`, `translate` and `schedule` are pure: they turn values
into values. `kernel.door` is the one place that changes the kernel's scheduling of a thread.
"""
