"""No secret, host key or machine id is in an image; the check sees those that are put in."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from images.build import OWN_UNITS, remove_scripts
from images.check import SYSTEM_UNITS, check, check_fat, identities, not_started, partitions, raised
from images.programs import BuildError

REPOSITORY = Path(__file__).parents[2]
PEM = "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n"


def test_what_goes_into_every_image_has_no_identity() -> None:
    for folder in ("images/files", "systemd", "provisioning", "edgert", "gateway", "agent"):
        assert identities(REPOSITORY / folder) == []


def test_a_program_with_the_rights_of_its_owner_is_seen_and_a_folder_of_a_group_is_none(tmp_path: Path) -> None:
    for name, mode in (("su", 0o4755), ("chage", 0o2755), ("ls", 0o755)):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(mode)
    (tmp_path / "journal").mkdir(mode=0o755)
    (tmp_path / "journal").chmod(0o2755)
    assert [path.name for path in raised(tmp_path)] == ["chage", "su"]


def test_nothing_of_the_folder_of_the_build_is_left_of_an_installed_command(tmp_path: Path) -> None:
    """The first line of a command names the Python of the build."""
    files = {}
    for builder in ("here", "there"):
        lib, venv = tmp_path / builder / "lib", tmp_path / builder / "venv"
        wheel = tmp_path / "named-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as packed:
            packed.writestr("named.py", "def main(): pass\n")
            about = {
                "METADATA": "Metadata-Version: 2.1\nName: named\nVersion: 1\n",
                "WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
                "entry_points.txt": "[console_scripts]\nnamed = named:main\n",
            }
            for name, text in about.items():
                packed.writestr(f"named-1.dist-info/{name}", text)
            packed.writestr("named-1.dist-info/RECORD", "")
        venv.mkdir(parents=True)
        (venv / "python").symlink_to(sys.executable)
        subprocess.run(
            [venv / "python", "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", lib,
             "--disable-pip-version-check", "named", "--find-links", tmp_path],
            check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        remove_scripts(lib)
        files[builder] = {path.relative_to(lib): path.read_bytes() for path in lib.rglob("*") if path.is_file()}
    assert files["here"] == files["there"]
    assert Path("named.py") in files["here"]


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
