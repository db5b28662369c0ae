"""`edgert config`: samples and docs in the repository are those that the settings give."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgert.cli.main import main
from edgert.core.settings.programs import PROGRAMS

DOCS = Path(__file__).parents[2] / "docs"


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["config", *arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("program", PROGRAMS)
def test_sample_file_in_docs_is_current(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = DOCS / f"{program}.sample.toml"
    command = f"edgert config sample {program} > docs/{file.name}"
    assert file.read_text() == output(capsys, "sample", program), f"run: {command}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_docs_of_settings_are_current(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (DOCS / "configuration.md").read_text()
    begin, end = f"<!-- begin: edgert config docs {program} -->\n", f"<!-- end: {program} -->"
    between = text.partition(begin)[2].partition(end)[0]
    assert between.strip() == output(capsys, "docs", program).strip(), "run: scripts/docs"


def test_good_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("[web]\nport = 0\n")
    assert "good settings of the gateway" in output(capsys, "check", "--file", str(file))


def test_every_error_of_file_and_environment_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("[web]\nport = -1\n")
    monkeypatch.setenv("EDGERT_LOG_LEVEL", "loud")
    assert main(["config", "check", "gateway", "--file", str(file)]) == 1
    errors = capsys.readouterr().err
    assert f"{file}: 2 errors" in errors
    assert "web.port: expected an integer from 0 to 65535, got -1" in errors
    assert "EDGERT_LOG_LEVEL: expected one of debug, info, warning, error, got 'loud'" in errors


def test_check_says_what_good_settings_expose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    password, file = tmp_path / "password", tmp_path / "gateway.toml"
    password.write_text("secret")
    password.chmod(0o644)
    file.write_text(
        f'[sensors]\nhost = "broker.example"\nusername = "g1"\npassword_file = "{password}"\n[web]\nhost = "0.0.0.0"\n'
    )
    assert main(["config", "check", "--file", str(file)]) == 0
    said = capsys.readouterr().err
    assert "mind: sensors.tls: the password and all data go to broker.example unencrypted" in said
    assert f"mind: sensors.password_file: every user of this machine may read {password}" in said
    assert "mind: web.host: whoever can reach 0.0.0.0 sees the page and the metrics" in said
    assert said.count("mind: ") == 3
    assert "secret" not in said
