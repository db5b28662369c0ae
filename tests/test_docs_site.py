"""The docs as a site: every page is in it, no link leads nowhere, and no page asks a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ASKED = re.compile(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["'](?:https?:)?//""")
"""A script, a style sheet or a picture from elsewhere."""


def test_the_site_builds_without_a_broken_link_and_needs_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(tmp_path / "site")]
    built = subprocess.run([*command, "-d", str(tmp_path / "trees")], capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    pages = {page.relative_to(tmp_path / "site"): page.read_text() for page in (tmp_path / "site").rglob("*.html")}
    written = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert written <= pages.keys()
    assert not [str(name) for name, text in pages.items() if ASKED.search(text)]
    assert 'name="viewport"' in pages[Path("index.html")], "a phone would show it tiny"
