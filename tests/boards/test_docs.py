"""The example of docs/board.md, run as it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from edgert.boards.revocation import revoked_names_untrusted
from edgert.cli.main import main
from provisioning.document import files_untrusted

PAGE = (Path(__file__).parents[2] / "docs/board.md").read_text().partition("## Many boards")[2]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_makes_its_boards_and_revokes_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (table,), (common,) = blocks("csv"), blocks("toml")
    Path("boards.csv").write_text(table)
    Path("common.toml").write_text(common)
    for line in "".join(blocks("sh")).splitlines():
        program, *arguments = shlex.split(line)
        assert program == "edgert"
        assert main(arguments) == 0, line
    files = files_untrusted((tmp_path / "boards/g1/edgert.toml").read_text())
    assert "Address=192.168.1.21/24\nGateway=192.168.1.1\nDNS=192.168.1.1\n" in files["network/lan.network"]
    assert {path.name for path in Path("broker").iterdir()} == {"server.pem", "server.key", "ca.pem"}
    assert revoked_names_untrusted(Path("ca/crl.pem").read_bytes(), "crl.pem") == {"g2"}
