"""The first file system of a board: busybox, the modules that reach its disk, and a script that mounts the root.

It is written here, without a program of the board, so a foreign board needs no emulation for it, and two builds of the
same packages are the same bytes. Format: cpio "newc" (Linux documentation, early-userspace/buffer-format.rst).
"""

from __future__ import annotations

import gzip
import lzma
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from images.layout import FAULTS_OFFSET, SECTOR, STATE_SIZE
from images.programs import BuildError

INIT: Final = r"""#!/bin/busybox sh
# Finds the disk by its data partition (the fourth, labelled edgert-data), mounts the slot that the kernel's argument
# edgert.slot=A or =B names read-only (the second or third partition), and starts its init. A board on which that fails
# starts again: the boot loader counts the attempts of a slot, there may be another, and nobody is there to type.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
say() { echo "<3>edgert: $*" >/dev/kmsg; } # as an error: "quiet" keeps warnings from the consoles
again() { say "$*; starting again in 10 s"; /bin/busybox sleep 10; /bin/busybox reboot -f; }
trap 'again "the first script failed"' EXIT
in_root() { /bin/busybox chroot /root "$@" >/dev/kmsg 2>&1; }

name_partitions() { # for the update client, which writes to the slot that is not in use
    whole=$(/bin/busybox readlink -f "/sys/class/block/${data##*/}/..")
    /bin/busybox mkdir -p /dev/edgert
    /bin/busybox ln -s "/dev/${whole##*/}" /dev/edgert/disk
    /bin/busybox ln -s "${data%4}2" /dev/edgert/slot-a
    /bin/busybox ln -s "${data%4}3" /dev/edgert/slot-b
}

name_boot_state() { # GRUB's tool wants a file of the size of the state
    in_root /usr/sbin/losetup --offset "$state" --sizelimit STATE_SIZE /dev/loop0 /dev/edgert/disk || return 1
    /bin/busybox ln -s /dev/loop0 /dev/edgert/boot-state
}

lost_data() { # the fourth partition of the disk that has a slot, if its label cannot be read any more
    beside=$(/bin/busybox findfs LABEL=edgert-root 2>/dev/null)
    [ ! -b "${beside%?}4" ] || echo "${beside%?}4"
}

mount_data() { # e2fsck takes a backup where the superblock is broken
    in_root /usr/sbin/e2fsck -p "$data"
    if [ $? -ge 4 ]; then
        say "the data partition is damaged, and is repaired"
        in_root /usr/sbin/e2fsck -y "$data"
    fi
    mount_whole_data
}

mount_whole_data() { /bin/busybox mount -t ext4 -o noatime,errors=remount-ro "$data" /root/var; }

count_fault() { # starts in a row without data; they are counted on the disk, beside the boot state
    echo "faults=$1" | /bin/busybox dd of=/dev/edgert/disk bs=512 seek=FAULTS_SECTOR conv=sync,notrunc,fsync 2>/dev/null
}

faults() {
    /bin/busybox dd if=/dev/edgert/disk bs=512 skip=FAULTS_SECTOR count=1 2>/dev/null |
        /bin/busybox sed -n 's/^faults=\([0-9]\)$/\1/p'
}

renew_data() { # a bad contact may pass: only the third start in a row makes the data anew
    number=$(faults)
    number=$((${number:-0} + 1))
    count_fault "$number"
    [ "$number" -ge 3 ] || again "the data partition cannot be repaired: start $number of 3 before it is made anew"
    say "the data partition cannot be repaired, and is made anew: all data of this board are lost"
    in_root /usr/sbin/mke2fs -q -F -t ext4 -m 0 -L edgert-data "$data" || return 1
    mount_whole_data || return 1
    /bin/busybox cp -a /root/opt/edgert/var/. /root/var/ || return 1
    /bin/busybox mkdir -p -m 700 /root/var/edgert/update
    now=$(/bin/busybox date -u +%Y-%m-%dT%H:%M:%S+00:00)
    echo "{\"time\": \"$now\", \"event\": \"data lost\", \"why\": \"the data partition could not be repaired\"}" \
        >/root/var/edgert/update/history.jsonl
    /bin/busybox sync
}

reset_data() { # to those of a new card; the mark goes last, so that after a power cut the next start begins again
    say "factory reset: all data of this board are removed"
    /bin/busybox find /root/var/edgert -type f -exec /bin/busybox shred -n 0 -z {} + # the keys, as far as a card obeys
    for path in /root/var/lost+found/* /root/var/* /root/var/.[!.]*; do
        case $path in "$reset" | */lost+found) continue ;; esac
        /bin/busybox rm -rf "$path" || return 1
    done
    /bin/busybox cp -a /root/opt/edgert/var/. /root/var/ || return 1
    /bin/busybox sync
    /bin/busybox rm "$reset" || return 1
    /bin/busybox sync
    /bin/busybox fstrim /root/var || say "this card cannot be told which blocks are free"
}

keep_machine_id() { # the id is made at the first start and kept with the data, as the root is never written
    id=/root/var/edgert/machine-id
    if ! /bin/busybox grep -qxE '[0-9a-f]{32}' "$id" 2>/dev/null; then
        /bin/busybox mkdir -p /root/var/edgert
        /bin/busybox tr -d - </proc/sys/kernel/random/uuid >"$id.part" || return 1
        /bin/busybox sync
        /bin/busybox mv "$id.part" "$id"
    fi
    /bin/busybox mount -o bind "$id" /root/etc/machine-id
}

slot= state= init=/sbin/init reset=/root/var/factory-reset
for argument in $(/bin/busybox cat /proc/cmdline); do
    case $argument in
    edgert.slot=*) slot=${argument#edgert.slot=} ;;
    edgert.state=*) state=${argument#edgert.state=} ;;
    init=*) init=${argument#init=} ;;
    esac
done
while read -r module; do
    /bin/busybox insmod "/modules/$module.ko" 2>/dev/null || say "module $module: not for this board"
done </modules/order
data= tries=0
while [ -z "$data" ]; do
    data=$(/bin/busybox findfs LABEL=edgert-data 2>/dev/null)
    tries=$((tries + 1))
    [ "$tries" -lt 600 ] || again "no file system edgert-data within a minute"
    [ -n "$data" ] || [ "$tries" -lt 100 ] || data=$(lost_data)
    [ -n "$data" ] || /bin/busybox sleep 0.1
done
case $slot in
A) device=${data%4}2 ;;
B) device=${data%4}3 ;;
*) again "expected edgert.slot=A or edgert.slot=B among the kernel's arguments" ;;
esac
/bin/busybox mount -t ext4 -o ro "$device" /root || again "cannot mount $device"
in_root /usr/bin/test -x "$init" || again "no $init on $device" # it is a link, which means something only inside
name_partitions
/bin/busybox mount -o bind /dev /root/dev
[ -z "$state" ] || name_boot_state || say "the boot state has no name: attempts of slots cannot be given back"
mount_data || renew_data || again "the data partition $data cannot be made anew"
[ -z "$(faults | /bin/busybox tr -d 0)" ] || count_fault 0
[ ! -e "$reset" ] || reset_data || again "the data cannot be removed"
keep_machine_id || say "the machine's id is of this start only"
for folder in proc sys dev; do /bin/busybox umount -l "/$folder"; done
exec /bin/busybox switch_root /root "$init"
"""
TRAILER: Final = "TRAILER!!!"


def build(busybox: Path, modules: Path, names: Sequence[str]) -> bytes:
    """The initramfs, compressed. `modules` is a folder such as /usr/lib/modules/6.12, in which depmod has run."""
    order = load_order((modules / "modules.dep").read_text(), names, (modules / "modules.builtin").read_text())
    script = script_of_init()
    files = {"init": (0o755, script.encode()), "bin/busybox": (0o755, busybox.read_bytes())}
    for path in order:
        files[f"modules/{module_name(path)}.ko"] = (0o644, _plain(modules / path))
    files["modules/order"] = (0o644, "".join(f"{module_name(path)}\n" for path in order).encode())
    return gzip.compress(cpio(("proc", "sys", "dev", "root", "bin", "modules"), files), 6, mtime=0)


def script_of_init() -> str:
    """The first script."""
    return INIT.replace("STATE_SIZE", str(STATE_SIZE)).replace("FAULTS_SECTOR", str(FAULTS_OFFSET // SECTOR))


def module_name(path: str) -> str:
    """`virtio_blk` for `kernel/drivers/block/virtio-blk.ko.xz`."""
    return path.rsplit("/", 1)[-1].split(".", 1)[0].replace("-", "_")


def load_order(dependencies: str, names: Iterable[str], builtin: str) -> list[str]:
    """Paths of the modules `names` and of all that they need, each after what it needs.

    `dependencies` and `builtin` are modules.dep and modules.builtin. What is built into the kernel is left out. Raises
    `BuildError` for a name that neither knows.
    """
    needs = {path: rest.split() for path, _, rest in (line.partition(":") for line in dependencies.splitlines())}
    paths = {module_name(path): path for path in needs}
    inside = {module_name(line) for line in builtin.split()}
    order: list[str] = []

    def take(path: str) -> None:
        if path not in order:
            for needed in needs[path]:
                take(needed)
            order.append(path)

    for name in names:
        if name in paths:
            take(paths[name])
        elif name not in inside:
            raise BuildError(f"expected a module of this kernel, got {name!r}: see `modules` of the board")
    return order


def _plain(path: Path) -> bytes:
    """A module without its compression: busybox then needs none, and the whole is compressed once."""
    content = path.read_bytes()
    return lzma.decompress(content) if path.suffix == ".xz" else content


def cpio(folders: Sequence[str], files: Mapping[str, tuple[int, bytes]]) -> bytes:
    """An archive with `files` (name -> mode, content), all of root, all of 1970."""
    entries = [(name, stat.S_IFDIR | 0o755, b"") for name in folders]
    entries += [(name, stat.S_IFREG | mode, content) for name, (mode, content) in files.items()]
    entries.append((TRAILER, 0, b""))
    out = bytearray()
    for inode, (name, mode, content) in enumerate(entries, start=1):
        named = name.encode() + b"\0"
        fields = (0 if name == TRAILER else inode, mode, 0, 0, 2 if stat.S_ISDIR(mode) else 1, 0, len(content),
                  0, 0, 0, 0, len(named), 0)  # fmt: skip
        out += b"070701" + b"".join(b"%08X" % field for field in fields) + named
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return bytes(out)
