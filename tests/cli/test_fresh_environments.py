"""Each page's commands as pasted, in a fresh environment that was made as the page says.

What needs a board, a broker or root is left out: those of README and own-sensor run in `tests/demo/test_tour.py` and
`tests/integration/ingest/test_own_sensor.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALL_S, PAGE_S = 1200.0, 600.0
ELSEWHERE = re.compile(
    r"sudo|cd /|export PATH|python3 -m venv|make |edgert-gateway|edgert-collector|mosquitto_"
    r"|edgert (deploy|status|board|sched|demo|central show|fleet (serve|crl|update|status|deploy|drain|fill)\b)"
)
"""Commands that need a board, a broker, root or a service that runs."""
GIVEN = {"docs/simulate.md": ["city-air.toml", "boards.toml"], "docs/board.md": ["boards.csv", "common.toml"]}
"""Files that a page describes and does not write by a command."""

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(INSTALL_S + 2 * PAGE_S)]


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def requirement(page: str) -> str:
    """The requirement in the page's command of pip, or in that of the README."""
    found = re.search(r"pip install '?(\.(?:\[[a-z,]+\])?)(?=['\s`)])", text(page))
    return found[1] if found else requirement("README.md")


def commands(page: str) -> list[str]:
    """The commands of the page's shell blocks, but for those that belong elsewhere."""
    blocks = [textwrap.dedent(block) for block in re.findall(r"^ *```sh\n(.*?)^ *```$", text(page), re.M | re.S)]
    whole = [
        command
        for block in blocks
        for command in re.findall(r"^.*<<'(?:END)'.*?^END$|^[^\n]+$", block.replace("\\\n", " "), re.M | re.S)
    ]
    plain = [re.sub(r"(/opt/edgert|\.venv)/bin/", "", command) for command in whole if command.strip()]
    return [command for command in plain if not ELSEWHERE.match(command)]


def fenced(page: str, kind: str, beginning: str) -> str:
    """A block of a kind that begins so."""
    found = re.search(rf"^```{kind}\n({re.escape(beginning)}.*?)^```$", text(page), re.M | re.S)
    assert found, (page, kind, beginning)
    return found[1]


def write_given(folder: Path, page: str) -> None:
    files = {
        "city-air.toml": fenced("docs/flows.md", "toml", 'name = "city-air"'),
        "boards.toml": fenced("docs/simulate.md", "toml", "[otherwise]"),
        "boards.csv": fenced("docs/board.md", "csv", "id,"),
        "common.toml": fenced("docs/board.md", "toml", "[central]"),
    }
    for name in GIVEN.get(page, ()):
        (folder / name).write_text(files[name], encoding="utf-8")
    if page == "docs/own-sensor.md":
        for name, content in re.findall(r"^```toml\n# file: (\S+)\n(.*?)^```$", text(page), re.M | re.S):
            (folder / name).write_text(content, encoding="utf-8")


@pytest.mark.parametrize(
    "page", ["README.md", "docs/simulate.md", "docs/fleet.md", "docs/board.md", "docs/own-sensor.md"]
)
def test_commands_of_a_page_run_after_its_own_installation(page: str, tmp_path: Path) -> None:
    programs, folder = tmp_path / "venv" / "bin", tmp_path / "work"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True, timeout=INSTALL_S)
    # A copy, since pip builds in the folder of the source.
    shutil.copytree(ROOT, tmp_path / "source", ignore=shutil.ignore_patterns(".*", "build", "demo-data", "*.egg-info"))
    wanted = requirement(page).replace(".", str(tmp_path / "source"), 1)
    pip = [str(programs / "pip"), "install", "--quiet", "--disable-pip-version-check", wanted]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=INSTALL_S)
    assert installed.returncode == 0, installed.stderr
    write_given(folder, page)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("EDGERT_", "PYTHON"))}
    env = kept | {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    here = commands(page)
    assert any("edgert " in command for command in here), "nothing was tried"
    for command in here:
        done = subprocess.run(
            ["sh", "-c", command], cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PAGE_S
        )
        told = f"{command}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in told, told
        assert done.returncode == (1 if "2,000 rows/s are more than" in told else 0), told
