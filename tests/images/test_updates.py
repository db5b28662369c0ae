"""RAUC's settings of a board, the manifest of a bundle, and the server that gives bundles out in parts."""

from __future__ import annotations

import configparser
import random
import shutil
import subprocess
import tomllib
import urllib.request
from pathlib import Path

import pytest

from images.bundle import make, manifest, split_chain
from images.programs import BuildError
from images.qemu.fleet import Fleet
from images.qemu.serving import Server
from images.updates import BACKENDS, system_conf

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("loader", sorted(BACKENDS))
def test_a_board_takes_no_bundle_that_is_checked_only_as_a_whole(loader: str) -> None:
    settings = configparser.ConfigParser()
    settings.read_string(system_conf("virt", loader))
    assert settings["system"]["bundle-formats"] == "-plain"
    assert settings["keyring"]["check-purpose"] == "codesign"
    assert {settings[f"slot.root.{number}"]["bootname"] for number in (0, 1)} == {"A", "B"}


def test_bundle_and_board_agree_on_their_kind() -> None:
    board, bundle = configparser.ConfigParser(), configparser.ConfigParser()
    board.read_string(system_conf("virt", "u-boot"))
    bundle.read_string(manifest("virt", "1.2"))
    assert board["system"]["compatible"] == bundle["update"]["compatible"]
    assert (bundle["update"]["version"], bundle["bundle"]["format"]) == ("1.2", "verity")


def test_a_chain_of_certificates() -> None:
    assert split_chain(f"{CERTIFICATE}\n{CERTIFICATE}") == [CERTIFICATE, CERTIFICATE]
    with pytest.raises(BuildError, match="without any"):
        split_chain("")


@pytest.mark.integration
def test_parts_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(200)))
    with Server(tmp_path) as server:
        url = f"http://127.0.0.1:{server.port}/file"
        for asked, expected in ((None, range(200)), ("bytes=10-19", range(10, 20)), ("bytes=190-", range(190, 200))):
            request = urllib.request.Request(url, headers={"Range": asked} if asked else {})
            with urllib.request.urlopen(request) as answer:
                assert answer.read() == bytes(expected)
        assert server.sent == 220
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{url}s")


@pytest.mark.integration
@pytest.mark.skipif(
    shutil.which("rauc") is None or shutil.which("mksquashfs") is None, reason="needs RAUC (scripts/setup image)"
)
def test_only_the_fleets_certificate_for_updates_signs_a_bundle(tmp_path: Path) -> None:
    """As a board checks it. That of the board itself is of the same CA, and for another use."""
    fleet, other = Fleet(tmp_path / "fleet", "g1"), Fleet(tmp_path / "other", "g1")
    identity = tomllib.loads(fleet.provisioning())["identity"]
    for name in ("certificate", "key"):
        (tmp_path / name).write_text(identity[name])
    root = tmp_path / "root.ext4"
    root.write_bytes(random.Random(1).randbytes(1 << 16))
    settings = system_conf("virt", "grub").replace("/var/edgert/identity/ca.pem", str(fleet.root))
    (tmp_path / "system.conf").write_text(settings.replace("/var/edgert/rauc", str(tmp_path)))
    signers = {"fleet": fleet.signer, "other": other.signer, "board": (tmp_path / "certificate", tmp_path / "key")}
    said = {}
    for name, (certificate, key) in signers.items():
        make(root, "virt", "7", certificate, key, tmp_path / f"{name}.raucb")
        done = subprocess.run(
            ["rauc", "-c", tmp_path / "system.conf", "info", tmp_path / f"{name}.raucb"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        said[name] = (done.returncode == 0, done.stdout + done.stderr)
    assert {name: good for name, (good, _) in said.items()} == {"fleet": True, "other": False, "board": False}, said
    assert "purpose" in said["board"][1]
