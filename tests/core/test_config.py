"""Settings: one description gives parser, environment, sample and docs."""

from __future__ import annotations

import contextlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgert.core import config
from edgert.core.config import section, setting
from edgert.core.errors import DocumentError, EdgertError, Problem
from edgert.core.toml import literal


@dataclass(frozen=True, slots=True)
class Web:
    """The page on the board."""

    enabled: bool = setting(True, doc="whether to serve it")
    host: str = setting("127.0.0.1", doc="address to listen on")
    port: int = setting(8080, doc="TCP port", minimum=0, maximum=65535)


@dataclass(frozen=True, slots=True)
class Pool:
    """The workers."""

    policy: str = setting("congestion-aware", doc="which instance runs next", choices=("congestion-aware", "random"))
    pause_s: float = setting(0.5, doc="longest pause", unit="s", minimum=0)
    files: tuple[str, ...] = setting((), doc="documents | to start")
    token: str = setting(
        "", doc="a secret", secret=True, check=lambda t: None if len(t) != 3 else "another length than 3"
    )


@dataclass(frozen=True, slots=True)
class Settings:
    web: Web = section(Web)
    pool: Pool = section(Pool, doc="Who works.")


def problems(text: str, env: dict[str, str] | None = None) -> tuple[Problem, ...]:
    with pytest.raises(DocumentError) as caught:
        config.parse(Settings, text, env or {})
    return caught.value.problems


def test_nothing_given_means_every_default() -> None:
    assert config.load(Settings, None, {}) == Settings()


def test_file_sets_values_and_environment_wins(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[web]\nport = 1\nhost = "::1"\n[pool]\nfiles = ["a", "b"]\npause_s = 2\n')
    got = config.load(Settings, file, {"EDGERT_WEB_PORT": "2", "EDGERT_WEB_ENABLED": "off", "OTHER": "x"})
    assert got.web == Web(enabled=False, host="::1", port=2)
    assert got.pool.files == ("a", "b")
    assert got.pool.pause_s == 2.0
    assert type(got.pool.pause_s) is float


def test_environment_list_is_separated_by_commas() -> None:
    assert config.parse(Settings, "", {"EDGERT_POOL_FILES": "a.toml, b.toml"}).pool.files == ("a.toml", "b.toml")


def test_every_error_is_reported_with_path_expected_and_got() -> None:
    found = problems(
        '[web]\nport = 70000\nenabled = 1\nhots = "x"\n[pool]\npolicy = "fast"\npause_s = nan\nfiles = [1]\n[poll]\n',
        {"EDGERT_WEB_HOST": "ok", "EDGERT_WEB_PROT": "1", "EDGERT_POOL_PAUSE_S": "soon"},
    )
    assert [str(p) for p in found] == [
        "web.port: expected an integer from 0 to 65535, got 70000",
        "web.enabled: expected true or false, got 1",
        "web.hots: expected a known setting (nearest: web.host), got an unknown one",
        "pool.policy: expected one of congestion-aware, random, got 'fast'",
        "pool.pause_s: expected a number of at least 0, got nan",
        "pool.files: expected a list of strings, got [1]",
        "poll: expected a known section (nearest: pool), got an unknown one",
        "EDGERT_WEB_PROT: expected a known variable (nearest: EDGERT_WEB_PORT), got an unknown one",
        "EDGERT_POOL_PAUSE_S: expected a number of at least 0, got 'soon'",
    ]


def test_a_boolean_is_not_an_integer() -> None:
    assert problems("[web]\nport = true\n")[0].expected == "an integer from 0 to 65535"


def test_a_section_that_is_no_table_is_refused() -> None:
    assert problems("web = 3\n") == (Problem("web", "a table [web]", "3"),)


def test_text_that_is_no_toml_is_refused_with_its_place() -> None:
    (problem,) = problems("[web\n")
    assert problem.expected == "TOML"
    assert "line 1" in problem.got


def test_secret_is_never_shown() -> None:
    secret = "xyz"
    (problem,) = problems(f'[pool]\ntoken = "{secret}"\n')
    assert secret not in str(problem)
    assert "hidden" not in repr(config.parse(Settings, "", {"EDGERT_POOL_TOKEN": "hidden"}))


def test_missing_file_says_which_and_why(tmp_path: Path) -> None:
    with pytest.raises(EdgertError, match=r"absent\.toml: expected a readable .* No such file"):
        config.load(Settings, tmp_path / "absent.toml", {})


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(DocumentError, match="UTF-8"):
        config.load(Settings, file, {})


def test_sample_is_toml_that_changes_nothing_and_uncommented_gives_the_defaults() -> None:
    text = config.sample(Settings)
    assert config.parse(Settings, text, {}) == Settings()
    settings_only = "\n".join(
        line.removeprefix("# ")
        for line in text.splitlines()
        if line.startswith("[") or (" = " in line and line[2] != " ")
    )
    assert config.parse(Settings, settings_only, {}) == Settings()
    assert {e.name for e in config.entries(Settings)} <= {
        key for table in tomllib.loads(settings_only).values() for key in table
    }


def test_docs_list_every_setting_with_its_variable() -> None:
    text = config.document(Settings)
    for entry in config.entries(Settings):
        assert f"| `{entry.name}` |" in text
        assert f"`{entry.variable}`" in text
    assert "Who works." in text
    assert "documents \\| to start" in text


@given(st.text())
def test_any_text_gives_settings_or_a_document_error(text: str) -> None:
    with contextlib.suppress(DocumentError):
        assert isinstance(config.parse(Settings, text, {"EDGERT_POOL_PAUSE_S": text}), Settings)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_literal_round_trips_through_toml(text: str) -> None:
    assert tomllib.loads(f"x = {literal(text)}")["x"] == text


@dataclass(frozen=True, slots=True)
class Places:
    """Paths."""

    folder: str = config.setting("", doc="a folder", path=True)
    key: str = config.setting("", doc="a key", secret_file=True)
    files: tuple[str, ...] = config.setting((), doc="documents", path=True)
    name: str = config.setting("", doc="a name")


@dataclass(frozen=True, slots=True)
class PlaceSettings:
    places: Places = config.section(Places)


def test_relative_paths_count_from_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    file = tmp_path / "x.toml"
    file.write_text('[places]\nfolder = "data"\nkey = "/etc/key"\nfiles = ["a.toml", "s3://b/c"]\nname = "n"\n')
    assert config.load(PlaceSettings, file, {}).places == Places(
        f"{tmp_path}/data", "/etc/key", (f"{tmp_path}/a.toml", "s3://b/c"), "n"
    )
    monkeypatch.chdir(tmp_path)
    assert config.load(PlaceSettings, "x.toml", {}).places.folder == f"{tmp_path}/data"
    assert config.load(PlaceSettings, file, {"EDGERT_PLACES_FOLDER": "here"}).places.folder == "here", (
        "as a shell has it"
    )


def test_data_that_was_made_where_a_relative_folder_used_to_count_from_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, old = tmp_path / "etc" / "x.toml", tmp_path / "old"
    file.parent.mkdir()
    (old / "data").mkdir(parents=True)
    file.write_text('[places]\nfolder = "data"\n')
    monkeypatch.chdir(old)

    def why() -> str:
        return config.left_behind(file, "places.folder", config.load(PlaceSettings, file, {}).places.folder, "x.db")

    assert why() == ""
    (old / "data" / "x.db").touch()
    assert why().startswith(f"{file}: places.folder = 'data' counts from the folder of this file: expected x.db in ")
    assert f"found it in {old}/data" in why()
    assert config.left_behind(file, "places.folder", "elsewhere", "x.db") == "", "the environment says where"
    (file.parent / "data").mkdir()
    (file.parent / "data" / "x.db").touch()
    assert why() == ""
