"""`edgert top`: the work of operators and threads, live."""
