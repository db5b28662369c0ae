"""`edgert fleet crl` over a real broker: a real gateway hands the list to the command that root runs on a board."""

from __future__ import annotations

import json
import threading
import tomllib
from pathlib import Path

import pytest

from edgert.boards.revocation import revoked_names_untrusted
from edgert.cli.board import revoked
from edgert.cli.main import main
from tests.integration.rig import FLEET, Rig

pytestmark = pytest.mark.integration


def test_a_revocation_reaches_the_boards(rig: Rig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ca, identity = tmp_path / "ca", tmp_path / "identity"
    (tmp_path / "boards.csv").write_text("id\ng1\ng2\n")
    assert main(["fleet", "ca", "init", str(ca), "--fleet", FLEET]) == 0
    table = ["provision", str(tmp_path / "boards.csv"), "--ca", str(ca), "--out", str(tmp_path / "out")]
    assert main(["fleet", *table]) == 0
    identity.mkdir()
    told = tomllib.loads((tmp_path / "out/g1/edgert.toml").read_text())["identity"]
    for name, file in (("certificate", "board.pem"), ("ca", "ca.pem"), ("crl", "crl.pem")):
        (identity / file).write_text(told[name])

    gateway = rig.gateway(links={"crl": str(identity / "crl.pem")}, web={"enabled": True})
    left = gateway.data / "crl.request"
    gateway.start_ready()
    gateway.wait(lambda status: status["central"]["connected"], "the central connection")
    ended = threading.Event()

    def systemd() -> None:
        while not ended.wait(0.05):
            if left.exists():
                revoked.take(left, identity)

    thread = threading.Thread(target=systemd)
    thread.start()
    try:
        assert main(["fleet", "revoke", "g2", "--ca", str(ca)]) == 0
        capsys.readouterr()
        where = ["--broker", f"127.0.0.1:{rig.broker.port}", "--timeout-s", "60", "--json"]
        assert main(["fleet", "crl", "--ca", str(ca), *where]) == 0
        said = json.loads(capsys.readouterr().out)
    finally:
        ended.set()
        thread.join()
    assert (said["have"], said["without"]) == (["g1"], [])
    stored = (identity / "crl.pem").read_bytes()
    assert stored == (ca / "crl.pem").read_bytes()
    assert revoked_names_untrusted(stored, "crl.pem") == {"g2"}
