"""OS scheduling (Lachesis, Middleware'21): metrics → policy → transformation → normaliser → translator → door.

`metric_graph`, `policies`, `rules`, `transformation`, `normalise`, `translate` and `schedule` are pure: they turn
values into values. `kernel.door` is the one place that changes the kernel's scheduling of a thread.
"""
