"""Tables in an S3-compatible store: collectors, leases and queries with a server; keys that nobody sees."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from edgert.central.collector.partition_leases import PartitionLeases
from edgert.central.tables.object_store import prepare
from edgert.central.tables.query import query
from edgert.cli.main import main
from edgert.core.errors import EdgertError
from edgert.core.results.results import PARTITIONS
from edgert.core.settings.central import ObjectStore as Settings
from tests.brokers import Broker
from tests.central.collector_rig import Outbox, Start, resend
from tests.central.results_examples import FLOW, Gateway, contribution
from tests.object_stores import BUCKET, KEY, SECRET, ObjectStore, object_store
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    made = object_store(tmp_path_factory.mktemp("store"))
    yield made
    made.stop()


@pytest.fixture
def root(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A folder in the store that this process can read, too."""
    root = f"s3://{BUCKET}/{request.node.name}"
    env = dict(store.environment)
    prepare(root, Settings(endpoint=store.endpoint), env)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return root


@pytest.mark.integration
def test_two_collectors_race_for_each_commit_and_one_is_killed(
    mosquitto: Callable[..., Broker],
    start: Start,
    store: ObjectStore,
    root: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    keys.chmod(0o600)
    env = {"EDGERT_OBJECT_STORE_ENDPOINT": store.endpoint, "EDGERT_OBJECT_STORE_CREDENTIALS_FILE": str(keys)}
    nothing = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    port = mosquitto().port
    outbox = Outbox(port)
    g = Gateway("g1")
    rng = random.Random(5)
    outbox.keep(g.open())
    collectors = [start(port, root, **env, **nothing, EDGERT_COLLECTOR_ID=name) for name in ("one", "two")]
    for name in ("one", "two"):
        wait_until(
            lambda n=name: any(s["collector"] == n and s["online"] for s in outbox.status),  # type: ignore[misc]
            "both collectors",
        )
    for turn in range(40):
        outbox.keep(g.rows(*[contribution(turn, str(k), 1.0) for k in range(5)]))
        outbox.send(rng)
        wait_until(lambda n=turn: len(outbox.waiting) < 30, "some acknowledgements")  # type: ignore[misc]
        if turn == 25:
            collectors[0].send_signal(signal.SIGKILL)
    wait_until(lambda: resend(outbox), "all acknowledgements", 90)
    outbox.close()
    rows = query(DeltaTable(f"{root}/landing/{FLOW}"), ["sequence", "source"])
    assert Counter((r["sequence"], r["source"]) for r in rows if r["source"]) == {
        (s, str(k)): 1 for s in range(2, 42) for k in range(5)
    }
    assert main(["central", "query", f"SELECT count(*) AS n FROM landing_{FLOW}", "--root", root, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": 201}
    assert main(["central", "upkeep", "--root", root]) == 0
    assert main(["central", "tables", "--root", root]) == 0
    assert f"landing/{FLOW}" in capsys.readouterr().out
    assert SECRET not in (tmp_path / "collector.log").read_text()


@pytest.mark.integration
def test_leases_are_shared_in_the_store(root: str) -> None:
    one, two = PartitionLeases(root, "one", 60.0), PartitionLeases(root, "two", 60.0)
    one.turn()
    two.turn()
    one.give_back(one.turn())
    two.turn()
    assert len(one.held) == len(two.held) == PARTITIONS // 2
    assert not one.held & two.held
    one.hold()
    two.hold()


@pytest.mark.parametrize("command", [["run"], ["rebuild", FLOW]])
def test_commands_that_write_with_spark_refuse_an_object_store(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    assert main(["central", *command, "--root", "s3://bucket/tables"]) == 1
    assert "expected a folder for what writes by Spark" in capsys.readouterr().err


def test_keys_come_from_a_file_that_not_everybody_may_read(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = s%crt\n")
    file.chmod(0o644)
    settings = Settings(endpoint="http://127.0.0.1:9", credentials_file=str(file))
    with pytest.raises(EdgertError, match="chmod 600"):
        prepare("s3://b/t", settings, {})
    file.chmod(0o600)
    env: dict[str, str] = {"AWS_REGION": "here"}
    prepare("s3://b/t", settings, env)
    assert env == {
        "AWS_REGION": "here",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "s%crt",
    }
    prepare("/srv/tables", settings, env := {})
    assert not env


def test_keys_of_the_file_replace_what_the_environment_has_whole(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    file.chmod(0o600)
    theirs = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_SESSION_TOKEN": "z", "AWS_REGION": "here"}
    env = dict(theirs)
    prepare("s3://b/t", Settings(credentials_file=str(file)), env)
    assert env == {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "here"}
    env = dict(theirs)
    prepare("s3://b/t", Settings(), env)
    assert env == theirs


@pytest.mark.parametrize("text", ["", "[default]\naws_access_key_id = s3cret", "s3cret", "[other]\nx = s3cret"])
def test_bad_file_of_keys_is_named_and_not_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(EdgertError) as caught:
        prepare("s3://b/t", Settings(credentials_file=str(file)), {})
    assert str(caught.value).startswith(f"object_store.credentials_file {file}: ")
    assert "s3cret" not in str(caught.value)
    file.unlink()
    with pytest.raises(EdgertError, match="No such file"):
        prepare("s3://b/t", Settings(credentials_file=str(file)), {})


@pytest.mark.parametrize("name", ["a?b[c]{d}", "x%20y", "a|b"])
def test_folder_that_deltalake_takes_for_another_one_is_refused(name: str, tmp_path: Path) -> None:
    """The first ended the collector with a panic, and the second had it try again for ever."""
    with pytest.raises(EdgertError, match=r"table root: expected a path without .*, got .* with "):
        prepare(str(tmp_path / name), Settings(), {})
    prepare(str(tmp_path / "a?b {d} ü"), Settings(), {})
