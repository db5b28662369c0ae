"""Boards of an image side by side, in containers of systemd-nspawn: for `python3 -m images.containers`."""
