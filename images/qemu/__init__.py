"""A board in QEMU, its fleet, and the world around it: for `python3 -m images.qemu`."""
