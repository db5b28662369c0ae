"""The docs as a site (`make docs-site`): Sphinx with MyST, in a theme that works on a phone and offline."""

from __future__ import annotations

project = "edgert"
project_copyright = "the edgert authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
myst_heading_anchors = 4
html_theme = "furo"
html_title = "edgert"
# Nothing of the site asks a server: it can be read from a card, without a network.
html_show_sphinx = False
html_copy_source = False
# Reference tables begin with a heading of the second level; a CSV file needs no colours.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]
