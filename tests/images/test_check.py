"""No secret, host key or machine id is in an image; the check sees those that are put in."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from images.build import OWN_UNITS
from images.check import SYSTEM_UNITS, check, check_fat, identities, not_started, partitions
from images.programs import BuildError

REPOSITORY = Path(__file__).parents[2]
PEM = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"


def test_what_goes_into_every_image_has_no_identity() -> None:
    for folder in ("images/files", "systemd", "provisioning", "edgert", "gateway", "agent"):
        assert identities(REPOSITORY / folder) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    shutil.copytree(REPOSITORY / "images/files", root)
    (root / "etc/machine-id").write_text("")
    (root / "etc/shadow").write_text("root:*:20000:0:99999:7:::\nmosquitto:!:20000::::::\n")
    assert identities(root) == []
    return root


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("etc/ssh/ssh_host_ed25519_key", "x", "by its name"),
        ("root/.ssh/authorized_keys", "x", "by its name"),
        ("var/edgert/ssh/host_key", "x", "by its name"),
        ("var/edgert/network/wifi.conf", "x", "by its name"),
        ("var/lib/systemd/random-seed", "x", "by its name"),
        ("var/lib/dhcp/dhclient.eth0.leases", "x", "by its name"),
        ("var/edgert/edgert.toml", "x", "by its name"),
        ("opt/edgert/lib/some.pem", PEM, "a private key"),
        ("etc/machine-id", "0123456789abcdef0123456789abcdef\n", "expected an empty file"),
        ("var/lib/dbus/machine-id", "0123456789abcdef0123456789abcdef\n", "expected an empty file"),
        ("etc/shadow", "root::20000:0:99999:7:::\n", "account root expected to be locked"),
        ("etc/shadow", "pi:$y$j9T$abc$def:20000:0:99999:7:::\n", "account pi expected to be locked"),
    ],
)
def test_an_identity_is_found(tree: Path, name: str, content: str, says: str) -> None:
    path = tree / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    [found] = identities(tree)
    assert found.startswith(name)
    assert says in found


def test_units_that_are_not_started_with_the_board_are_found(tree: Path) -> None:
    units = sorted([*OWN_UNITS, *SYSTEM_UNITS])
    assert not_started(tree) == units
    wanted = tree / "etc/systemd/system/multi-user.target.wants"
    wanted.mkdir()
    for unit in units:
        (wanted / unit).symlink_to(f"/etc/systemd/system/{unit}")
    assert not_started(tree) == []


@pytest.mark.long  # reads all of an image: some 10 s
@pytest.mark.parametrize("board", sorted(path.stem for path in (REPOSITORY / "images/boards").glob("*.toml")))
def test_an_image_that_was_built(board: str) -> None:
    built = REPOSITORY / "build/images" / board
    if not (built / "sbom.json").exists():
        pytest.skip(f"no image was built: make image BOARD={board}")
    said = check(board, built)
    assert "no secret or identity" in said[0]


@pytest.mark.skipif(not shutil.which("mcopy"), reason="needs mtools")
@pytest.mark.parametrize(("name", "content"), [("edgert.toml", "x"), ("notes.txt", PEM)])
def test_a_secret_on_the_fat_partition_is_found(tmp_path: Path, name: str, content: str) -> None:
    """A provisioning file that was left there went out with each card."""
    fat, folder = tmp_path / "fat", tmp_path / "files"
    subprocess.run(["mformat", "-C", "-i", fat, "-f", "1440", "::"], check=True)
    for file, text in (("config.txt", "x"), (name, content)):
        (tmp_path / file).write_text(text)
        subprocess.run(["mcopy", "-i", fat, tmp_path / file, "::/"], check=True)
    with pytest.raises(BuildError, match=f"on the FAT partition, got:\n{name}"):
        check_fat(fat, folder)


def test_partitions_of_a_card() -> None:
    entries = b"".join(
        struct.pack("<B3xB3xII", 0x80 if kind == 0x0C else 0, kind, first, count)
        for kind, first, count in ((0x0C, 2048, 100), (0x83, 4096, 200))
    )
    record = bytes(446) + entries + bytes(32) + b"\x55\xaa"
    assert partitions(record) == [(0x0C, 2048 * 512, 100 * 512), (0x83, 4096 * 512, 200 * 512)]
    with pytest.raises(BuildError, match="55 AA"):
        partitions(bytes(512))
