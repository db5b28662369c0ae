"""RAUC's settings of a board, the manifest of a bundle, and the server that gives bundles out in parts."""

from __future__ import annotations

import configparser
import urllib.request
from pathlib import Path

import pytest

from images.bundle import manifest, split_chain
from images.programs import BuildError
from images.serving import Server
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
