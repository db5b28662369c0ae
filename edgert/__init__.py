"""edgert: the runtime library of the gateway. Importable alone; it never imports `gateway` or `agent`."""

__version__ = "0.1.0"
