"""The central side: collector, landing tables, the Spark fleet job. Never imported on a device."""
