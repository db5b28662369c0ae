"""The control socket: requests to a running gateway or agent, and their answers, over a Unix socket."""
