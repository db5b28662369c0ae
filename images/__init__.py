"""Images of boards: built by `images.build`, booted by `images.qemu`."""
