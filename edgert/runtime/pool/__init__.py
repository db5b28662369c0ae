"""The pool: workers that run instances, backpressure, instances at rest, and the roles of threads."""
