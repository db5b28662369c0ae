"""The docs as a site: every page is in it, no link leads nowhere, and no page asks a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ASKED = re.compile(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["'](?:https?:)?//""")
"""A script, a style sheet or a picture from elsewhere."""

LINK = re.compile(r"\]\(([^)\s]+)\)")


def dead_links(page: Path) -> list[str]:
    """Links of a page outside the site to files that do not exist, or to headings that their page does not have."""
    dead = []
    for link in LINK.findall(page.read_text()):
        path, _, anchor = link.partition("#")
        file = page.parent / path if path else page
        if re.match(r"https?:", link) or (file.exists() and not anchor):
            continue
        headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE) if file.is_file() else []
        if anchor not in {re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-") for heading in headings}:
            dead.append(link)
    return dead


@pytest.mark.parametrize("name", ["README.md", "CHANGELOG.md"])
def test_links_of_a_page_beside_the_site_lead_somewhere(name: str) -> None:
    assert dead_links(ROOT / name) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# Two words, here")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md) [b](other.md#two-words-here) [c](gone.md) [d](other.md#gone) [e](#gone) [f](https://x)"
    )
    assert dead_links(page) == ["gone.md", "other.md#gone", "#gone"]


def test_the_site_builds_without_a_broken_link_and_needs_no_network(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", str(ROOT / "docs"), str(tmp_path / "site")]
    built = subprocess.run([*command, "-d", str(tmp_path / "trees")], capture_output=True, text=True, check=False)
    assert (built.returncode, built.stderr) == (0, "")
    pages = {page.relative_to(tmp_path / "site"): page.read_text() for page in (tmp_path / "site").rglob("*.html")}
    written = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert written <= pages.keys()
    assert not [str(name) for name, text in pages.items() if ASKED.search(text)]
    assert 'name="viewport"' in pages[Path("index.html")], "a phone would show it tiny"
