"""The commands of the fleet's CA: what they write, who may read it, and what a second run does."""

from __future__ import annotations

import json
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from edgert.boards import files
from edgert.boards.revocation import revoked_names_untrusted
from edgert.cli.main import main
from edgert.core.config import load
from edgert.core.errors import EdgertError
from edgert.core.results.macs import gateway_key
from edgert.core.settings.agent import AgentSettings
from edgert.core.settings.gateway import GatewaySettings
from edgert.mqtt.clients.credentials import read_mac_key, read_mac_keys
from provisioning.document import IDENTITY, SECRETS
from provisioning.on_board import take_untrusted

TABLE = "id,site,central.port\ng1,barn,\ng2,barn,8884\ng3,field,\n"


class Fleet:
    """A CA and its boards in a folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.ca, self.out, self.table = folder / "ca", folder / "out", folder / "boards.csv"
        self.common = folder / "common.toml"
        self.common.write_text('[central]\nhost = "broker.farm.example"\n')
        self.table.write_text(TABLE)
        self._capsys = capsys
        self.said = ""
        assert main(["fleet", "ca", "init", str(self.ca), "--fleet", "farm"]) == 0

    def provision(self, expected: int = 0) -> dict[str, Any]:
        self._capsys.readouterr()
        arguments = ["--ca", self.ca, "--out", self.out, "--common", self.common, "--json"]
        assert main(["fleet", "provision", str(self.table), *map(str, arguments)]) == expected
        caught = self._capsys.readouterr()
        self.said = caught.out + caught.err
        report: dict[str, Any] = json.loads(caught.out)
        return report

    def revoke(self, name: str) -> int:
        return main(["fleet", "revoke", name, "--ca", str(self.ca)])

    def bundle(self, name: str) -> Path:
        return self.out / name / "edgert.toml"


@pytest.fixture
def fleet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Fleet:
    return Fleet(tmp_path, capsys)


def states(report: dict[str, Any]) -> dict[str, str]:
    return {board["id"]: board["state"] for board in report["boards"]}


def test_a_board_takes_its_bundle_at_its_first_boot(fleet: Fleet, tmp_path: Path) -> None:
    assert fleet.provision()["made"] == 3
    stored = tmp_path / "stored"
    assert take_untrusted(fleet.bundle("g2").parent, stored)
    assert not fleet.bundle("g2").exists()  # wiped
    gateway = load(GatewaySettings, stored / "gateway.toml", {})
    agent = load(AgentSettings, stored / "agent.toml", {})
    assert (gateway.gateway.id, gateway.gateway.fleet) == ("g2", "farm")
    assert (gateway.central.tls, gateway.central.port) == (True, 8884)
    assert gateway.central.key_file == gateway.links.key == "/var/edgert/identity/board.key"
    assert (agent.gateway.id, agent.agent.labels) == ("g2", ("site=barn",))
    assert agent.agent.crl_file == gateway.links.crl == "/var/edgert/identity/crl.pem"
    assert (agent.agent.certificate, agent.agent.private_key) == (gateway.links.certificate, gateway.links.key)
    assert (stored / "identity/fleet.key").read_text() == (fleet.ca / "fleet.key").read_text()
    assert gateway.central.mac_key_file == "/var/edgert/identity/mac.key"
    for name in SECRETS & set(IDENTITY.values()):
        assert not (stored / name).stat().st_mode & stat.S_IRWXO, name
    openssl = ["openssl", "verify", "-crl_check", "-CAfile", "ca.pem", "-CRLfile", "crl.pem", "-untrusted"]
    subprocess.run([*openssl, "board.pem", "board.pem"], cwd=stored / "identity", check=True, capture_output=True)


def stored_key(fleet: Fleet, name: str, stored: Path) -> bytes | None:
    """The key of MACs that a board has after its first boot."""
    assert take_untrusted(fleet.bundle(name).parent, stored)
    return read_mac_key(str(stored / "identity/mac.key"))


def test_a_provisioned_board_has_a_key_of_its_own_that_the_collector_makes_of_the_central_one(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.provision()
    (central,) = read_mac_keys(str(fleet.ca / "mac.key"), "collector")
    for name in ("g1", "g2"):
        assert stored_key(fleet, name, tmp_path / name) == gateway_key(central, "farm", name)


def test_the_central_key_is_rotated_while_boards_have_the_former_one(fleet: Fleet, tmp_path: Path) -> None:
    fleet.provision()
    former = stored_key(fleet, "g1", tmp_path / "before")
    file = str(fleet.ca / "mac.key")
    assert main(["fleet", "mac-key", file, "--add"]) == main(["fleet", "mac-key", file, "--use"]) == 0
    new, old = read_mac_keys(file, "collector")
    assert former == gateway_key(old, "farm", "g1")
    assert states(fleet.provision()) == {"g1": "made", "g2": "updated", "g3": "updated"}
    assert stored_key(fleet, "g2", tmp_path / "after") == gateway_key(new, "farm", "g2")
    assert main(["fleet", "mac-key", file, "--drop"]) == 0
    assert read_mac_keys(file, "collector") == [new]


def test_a_gateway_without_a_provisioning_file_gets_the_same_key_by_hand(fleet: Fleet, tmp_path: Path) -> None:
    fleet.provision()
    file, out = str(fleet.ca / "mac.key"), tmp_path / "g1.key"
    by_hand = ["fleet", "mac-key", file, "--of", "g1", "--fleet", "farm"]
    assert main([*by_hand, "--out", str(out)]) == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert read_mac_key(str(out)) == stored_key(fleet, "g1", tmp_path / "stored")
    assert main([*by_hand, "--out", str(out)]) == 1, "it is there already"
    assert main(by_hand) == 1
    assert main(["fleet", "mac-key", file, "--of", "g/1", "--out", str(tmp_path / "x")]) == 1


def test_a_later_file_without_identity_leaves_no_key_behind(fleet: Fleet, tmp_path: Path) -> None:
    fleet.provision()
    folder, stored = fleet.bundle("g1").parent, tmp_path / "stored"
    assert take_untrusted(folder, stored)
    (folder / "edgert.toml").write_text('[gateway]\nid = "g1"\n')
    assert take_untrusted(folder, stored)
    assert not list((stored / "identity").iterdir())


def test_nobody_else_reads_keys_and_no_output_shows_one(fleet: Fleet) -> None:
    fleet.provision()
    secrets = [fleet.ca / name for name in ("root/root.key", "intermediate.key", "fleet.key", "mac.key")]
    for path in (*secrets, fleet.bundle("g1")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700, path
    written = fleet.said + (fleet.out / "report.json").read_text()
    assert "PRIVATE KEY" not in written
    for name in ("fleet.key", "mac.key"):
        assert (fleet.ca / name).read_text().strip() not in written


def test_a_second_run_leaves_good_bundles_alone_and_mends_the_others(fleet: Fleet) -> None:
    fleet.provision()
    first = {name: fleet.bundle(name).read_text() for name in ("g1", "g2", "g3")}
    fleet.bundle("g2").write_text(first["g2"][:-300])  # cut off
    fleet.bundle("g3").unlink()
    report = fleet.provision()
    assert states(report) == {"g1": "kept", "g2": "made", "g3": "made"}
    assert fleet.bundle("g1").read_text() == first["g1"]
    assert fleet.bundle("g3").read_text() != first["g3"]
    assert states(fleet.provision()) == dict.fromkeys(first, "kept")


def test_a_name_that_another_table_has_is_told_with_the_certificate_that_is_valid(fleet: Fleet) -> None:
    assert "stays valid" not in (fleet.provision() and fleet.said)
    fleet.table.write_text("id\ng2\ng4\n")
    fleet.out = fleet.out.with_name("other")
    first, second = fleet.provision()["boards"]
    assert first["warning"].startswith("g2 has a certificate of 20")
    assert f"boards.csv: line 2: {first['warning']}" in fleet.said
    assert "warning" not in second
    fleet.provision()
    assert "stays valid" not in fleet.said


def test_a_token_for_a_name_with_a_certificate_is_told(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.provision()
    token = [
        "fleet",
        "token",
        "g1",
        "g9",
        "--ca",
        str(fleet.ca),
        "--out",
        str(fleet.out),
        "--url",
        "https://ca.example",
    ]
    assert main(token) == 0
    said = capsys.readouterr().err
    assert "g1 has a certificate of" in said
    assert "g9 has" not in said


def test_an_editor_that_puts_byte_order_marks_in_front_of_all_files_costs_no_certificate(fleet: Fleet) -> None:
    fleet.provision()
    before = tomllib.loads(fleet.bundle("g1").read_text())["identity"]
    for path in (*fleet.ca.iterdir(), fleet.table, fleet.common, fleet.bundle("g1")):
        if path.is_file() and path.suffix != ".json":
            path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert states(fleet.provision()) == {"g1": "updated", "g2": "kept", "g3": "kept"}
    assert tomllib.loads(fleet.bundle("g1").read_text())["identity"] == before


def test_a_changed_setting_keeps_the_certificate(fleet: Fleet) -> None:
    fleet.provision()
    before = fleet.bundle("g1").read_text()
    fleet.table.write_text(TABLE.replace("g1,barn", "g1,field"))
    assert states(fleet.provision()) == {"g1": "updated", "g2": "kept", "g3": "kept"}
    assert fleet.bundle("g1").read_text() == before.replace("site=barn", "site=field")


def test_the_bundle_of_one_board_is_not_another_s(fleet: Fleet) -> None:
    fleet.provision()
    fleet.bundle("g2").write_text(fleet.bundle("g1").read_text())
    assert states(fleet.provision())["g2"] == "made"


def test_wrong_lines_are_named_and_the_others_are_made(fleet: Fleet) -> None:
    fleet.table.write_text("id,central.port\ng1,many\ng2,\n")
    report = fleet.provision(expected=1)
    assert states(report) == {"g2": "made"}
    assert [one["where"] for one in report["problems"]] == ["line 2, column central.port"]
    assert "boards.csv: line 2, column central.port: expected an integer from 1 to 65535, got 'many'" in fleet.said


def test_a_revoked_name_stays_revoked(fleet: Fleet) -> None:
    fleet.provision()
    assert fleet.revoke("g2") == 0
    assert fleet.revoke("g2") == 0  # changes nothing
    assert revoked_names_untrusted((fleet.ca / "crl.pem").read_bytes(), "crl.pem") == {"g2"}
    report = fleet.provision(expected=1)
    assert states(report) == {"g1": "updated", "g2": "refused", "g3": "updated"}
    assert "line 3: g2: expected a name that was never revoked" in fleet.said
    assert fleet.revoke("g3") == 0
    assert revoked_names_untrusted((fleet.ca / "crl.pem").read_bytes(), "crl.pem") == {"g2", "g3"}


def test_an_unknown_board_cannot_be_revoked(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    fleet.provision()
    for name in ("g7", "../ca", ""):
        assert fleet.revoke(name) == 1
    assert "expected a board with a certificate of this CA (g1, g2, g3" in capsys.readouterr().err


def test_a_ca_is_never_made_over_another(fleet: Fleet) -> None:
    before = (fleet.ca / "root.pem").read_bytes()
    assert main(["fleet", "ca", "init", str(fleet.ca)]) == 1
    assert (fleet.ca / "root.pem").read_bytes() == before


def test_a_user_takes_no_board_s_name(fleet: Fleet, tmp_path: Path) -> None:
    fleet.provision()
    user = ["fleet", "ca", "user", "--ca", str(fleet.ca), "--out", str(tmp_path / "user")]
    assert main([*user, "g1"]) == 1
    assert main([*user, "central"]) == 0
    assert stat.S_IMODE((tmp_path / "user/user.key").stat().st_mode) == 0o600
    fleet.table.write_text("id\ncentral\n")
    assert states(fleet.provision(expected=1)) == {"central": "refused"}


def test_a_certificate_for_updates_signs_programs_and_nothing_else(fleet: Fleet, tmp_path: Path) -> None:
    fleet.provision()
    updates = ["fleet", "ca", "updates", "--ca", str(fleet.ca), "--out", str(tmp_path / "updates")]
    assert main([*updates, "g1"]) == 1
    assert main([*updates, "release"]) == 0
    made = x509.load_pem_x509_certificate((tmp_path / "updates/updates.pem").read_bytes())
    uses = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(uses) == [ExtendedKeyUsageOID.CODE_SIGNING]
    assert stat.S_IMODE((tmp_path / "updates/updates.key").stat().st_mode) == 0o600
    assert fleet.revoke("release") == 0


def test_a_broker_takes_hosts_only_and_no_board_s_name(fleet: Fleet, tmp_path: Path) -> None:
    fleet.provision()
    server = ["fleet", "ca", "server", "--ca", str(fleet.ca), "--out", str(tmp_path / "server")]
    for hosts in (["../x"], ["b.example", "a b"], ["g1"], ["b.example", "g1"]):
        assert main([*server, *hosts]) == 1, hosts
    assert {path.name for path in (fleet.ca / "issued").iterdir()} == {"g1", "g2", "g3"}
    assert main([*server, "::1", "b.example"]) == 0
    assert fleet.revoke("::1") == 0
    assert main([*server, "::1"]) == 0  # a new one for the same host
    assert revoked_names_untrusted((fleet.ca / "crl.pem").read_bytes(), "crl.pem") == set()


def test_one_program_at_a_time_works_with_a_ca(fleet: Fleet, capsys: pytest.CaptureFixture[str]) -> None:
    with files.locked(fleet.ca):
        assert fleet.revoke("g1") == 1
    assert "another program works with this CA" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["root.pem", "intermediate.key", "crl.pem", "fleet.key", "mac.key"])
def test_a_file_of_the_ca_that_is_missing_or_damaged_is_named(
    name: str, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    (fleet.ca / name).unlink()
    assert fleet.revoke("g1") == 1
    assert name in capsys.readouterr().err
    (fleet.ca / name).write_text("rubbish")
    assert fleet.revoke("g1") == 1
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "rubbish", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"])
def test_a_list_that_is_none_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(EdgertError, match=r"crl\.pem: expected a certificate revocation list"):
        revoked_names_untrusted(text.encode(), "crl.pem")
