"""Updates of a board in QEMU: a good bundle, broken ones, wrong signatures. Part of `python3 -m images.qemu`."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from images import bundle
from images.build import PYTHON
from images.ext4 import change
from images.qemu.central import HOST, Central
from images.qemu.fleet import Fleet
from images.qemu.machine import BootError, Machine
from images.qemu.serving import Server

EDGERT: Final = "/opt/edgert/bin/edgert"
INSTALL_S: Final = 3600.0
TRIAL_S: Final = 5400.0
"""An emulated board restarts up to four times in it, and waits for a gateway that does not come."""
OTHER: Final = {"A": "B", "B": "A"}
BROKEN: Final = {
    "/opt/edgert/lib/gateway/__main__.py": 'raise SystemExit("this gateway is broken on purpose")\n',
    f"/opt/edgert/lib/gateway/__pycache__/__main__.cpython-{PYTHON}.pyc": "",
}
"""Python would run what it compiled, without a look at the source."""


class Updates:
    """The updates of one board, for as long as its context lasts: bundles come from a web server."""

    def __init__(
        self, board: str, images: Path, folder: Path, machine: Machine, fleet: Fleet,
        counts: Callable[[], None], say: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`counts` shows that the board's flow counts, without being deployed again: its state is with the data."""
        self._board, self._machine, self._fleet, self._say = board, machine, fleet, say
        self._image, self._folder = images / "root.ext4", folder / "bundles"
        self._folder.mkdir(exist_ok=True)
        self._counts = counts
        self._seen = 0

    def __enter__(self) -> Updates:
        self._server = Server(self._folder)
        self._server.__enter__()
        self._url = f"http://{HOST}:{self._server.port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def play(self, scenes: Collection[str]) -> None:
        """Plays those of `SCENES`. Raises `BootError` at the first that does not end as it should."""
        self._each(SCENES, scenes, self)

    def play_with_fleet(self, scenes: Collection[str], central: Central) -> None:
        """Plays those of `FLEET_SCENES`: updates over MQTT, of a board that is connected to the central side."""
        self._each(FLEET_SCENES, scenes, self, central)

    def _each(self, known: Mapping[str, Callable[..., None]], scenes: Collection[str], *arguments: object) -> None:
        if chosen := [play for name, play in known.items() if name in scenes]:
            self.settle()
            for play in chosen:
                play(*arguments)

    def begin(self) -> None:
        """Starts an update that is not waited for. With its end the board restarts."""
        if not (self._folder / "begun.raucb").exists():
            self._make("begun.raucb", f"{self._own}.begun", {})
        self._ask(f"systemd-run --collect {EDGERT} board update {self._url}/begun.raucb")

    @property
    def running(self) -> str:
        """The slot and the version that ran when all was decided."""
        return f"slot {self._slot}, version {self._own}"

    def settle(self) -> None:
        """Waits until an update of a broken-off run is decided; then the slot that runs is the one to begin with."""
        ends = time.monotonic() + TRIAL_S
        while (found := self._status())["pending"]:
            if time.monotonic() > ends:
                raise BootError(f"waited {TRIAL_S:.0f} s for a decision about {found['pending']}")
            time.sleep(2.0)
        self._slot, self._own = found["slot"], found["version"]

    # -- scenes

    def _wrong_signature(self) -> None:
        """Bundles of another fleet, or signed by a certificate for other purposes. Their content is never read."""
        root = self._folder / "unread.img"
        root.write_bytes(os.urandom(1 << 20))  # RAUC makes no bundle of zeros: they are squashed to nothing
        other = Fleet(self._folder.parent / "other", "other-board")
        bundle.make(root, self._board, "9", *other.signer, self._folder / "other.raucb")
        identity = self._folder.parent / "identity"
        identity.mkdir(exist_ok=True)
        for name in ("board.pem", "board.key"):
            (identity / name).write_text(self._ask(f"cat /var/edgert/identity/{name}"))
        signer = (identity / "board.pem", identity / "board.key")
        bundle.make(root, self._board, "9", *signer, self._folder / "board.raucb")
        for name in ("other.raucb", "board.raucb"):
            status, said = self._machine.ask(f"{EDGERT} board update {self._url}/{name}", INSTALL_S)
            if status == 0 or "signature" not in said:
                raise BootError(f"expected {name} to be refused for its signature, got status {status}: {said}")
            self._say(f"{name} is refused: {said.strip().splitlines()[-1][-160:]}")
        if self._history()[-1]["event"] != "refused":
            raise BootError(f"expected a refusal in the history, got {self._history()}")
        self._expect_slot()

    def _good(self) -> None:
        version = f"{self._own}.good"
        installed = self._install("good.raucb", version, {})
        began = time.monotonic()
        self._decided("confirmed", version)
        self._own, self._slot = version, OTHER[self._slot]
        self._expect_slot()
        self._say(f"{installed}; slot {self._slot}, version {version} is confirmed {self._since(began)} s later")
        self._counts()

    def _broken(self, what: str, changes: dict[str, str], why: str) -> None:
        version, name = f"{self._own}.{what.replace(' ', '-')}", f"{what.replace(' ', '-')}.raucb"
        before = len(self._machine.starts())
        installed = self._install(name, version, changes)
        began = time.monotonic()
        said = self._decided("rolled back", version)
        if why not in said["why"]:
            raise BootError(f"expected {why!r} as the reason, got {said}")
        self._counts()
        self._expect_slot()
        starts = " ".join(self._machine.starts()[before:])
        back = f"slots started: {starts}; back after {self._since(began)} s"
        self._say(f"broken bundle ({what}): {installed}; {back}")
        self._say(f"  its history says: {said['why']}")

    def _cut_while_installing(self) -> None:
        """The slot that runs is not touched, so the board starts from it."""
        self._make("cut.raucb", f"{self._own}.cut", {})
        self._ask(f"systemd-run --collect {EDGERT} board update {self._url}/cut.raucb")
        for _ in range(600):
            if self._machine.ask("test -e /var/edgert/update/pending.json")[0] == 0:
                break
            time.sleep(0.5)
        time.sleep(2.0)
        self._machine.cut()
        self._machine.start()
        said = self._decided("failed", f"{self._own}.cut")
        self._counts()
        self._expect_slot()
        self._say(f"power cut while a slot was written: {said['why']}")

    def _broken_gateway(self) -> None:
        self._broken("gateway", BROKEN, "edgert-gateway.service")

    def _no_init(self) -> None:
        self._broken("no init", {"/usr/lib/systemd/systemd": ""}, "did not come up")

    def _by_fleet(self, central: Central) -> None:
        version = f"{self._own}.fleet"
        self._asked_by_fleet(central, "fleet", version, {}, "confirmed")
        self._own, self._slot = version, OTHER[self._slot]
        self._expect_slot()
        self._counts()

    def _broken_by_fleet(self, central: Central) -> None:
        version = f"{self._own}.fleet-gateway"
        why = self._asked_by_fleet(central, "fleet-gateway", version, BROKEN, "rolled back")
        if "edgert-gateway.service" not in why:
            raise BootError(f"expected the gateway as the reason, got {why!r}")
        self._counts()
        self._expect_slot()

    def _asked_by_fleet(self, central: Central, name: str, version: str, changes: dict[str, str], expected: str) -> str:
        """Runs `edgert fleet update`; returns the reason that the board gave."""
        self._make(f"{name}.raucb", version, changes)
        began, before = time.monotonic(), len(self._machine.starts())
        status, result, said = central.update(f"{self._url}/{name}.raucb", "--wave", "100%", "--version", version)
        [board] = result.get("boards", {"": {}}).values()
        if (status, board.get("result")) != (int(expected != "confirmed"), expected):
            raise BootError(f"expected {expected}, got status {status}, {result}: {said}\n{self._machine.tail()}")
        starts = " ".join(self._machine.starts()[before:])
        self._say(f"edgert fleet update ({name}): {expected} after {self._since(began)} s; slots started: {starts}")
        for line in said.splitlines():
            self._say(f"  {line[:200]}")
        return str(board["why"])

    # -- steps

    def _install(self, name: str, version: str, changes: dict[str, str]) -> str:
        """Starts the new slot; returns what the installation took."""
        self._make(name, version, changes)
        began, sent, size = time.monotonic(), self._server.sent, (self._folder / name).stat().st_size
        status, said = self._machine.ask(f"{EDGERT} board update --no-restart {self._url}/{name}", INSTALL_S)
        if status:
            raise BootError(f"expected {name} to be installed, got status {status}: {said}")
        fetched = self._server.sent - sent
        text = f"installed in {self._since(began)} s ({fetched / 1e6:.1f} of {size / 1e6:.0f} MB fetched)"
        self._machine.tell("systemctl reboot")
        return text

    def _make(self, name: str, version: str, changes: dict[str, str]) -> None:
        """A bundle of the image, with the content of some files changed (an empty one: removed)."""
        self._seen = len(self._history())
        root = self._folder / "root.img"
        shutil.copy(self._image, root)
        plain = json.dumps({"board": self._board, "version": version, "updates": True})
        for path, content in {"/etc/edgert/image.json": plain, **changes}.items():
            change(root, path, content)
        bundle.make(root, self._board, version, *self._fleet.signer, self._folder / name)
        root.unlink()

    def _decided(self, event: str, version: str) -> dict[str, Any]:
        """Waits until the history tells what became of a version, and nothing else."""
        ends = time.monotonic() + TRIAL_S
        while time.monotonic() < ends:
            later = self._history()[self._seen :]
            found = [one for one in later if one.get("version") == version and one["event"] != "installed"]
            if found:
                if found[-1]["event"] != event:
                    raise BootError(f"expected version {version} to be {event}, got {found}\n{self._machine.tail()}")
                return found[-1]
            time.sleep(2.0)
        raise BootError(f"waited {TRIAL_S:.0f} s for: version {version} {event}\n{self._machine.tail()}")

    def _expect_slot(self) -> None:
        found = self._status()
        if (found["slot"], found["version"], found["pending"]) != (self._slot, self._own, None):
            raise BootError(f"expected slot {self._slot} with version {self._own}, got {found}")

    def _status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._ask(f"{EDGERT} board status --json"))
        return found

    def _history(self) -> list[dict[str, Any]]:
        status, said = self._machine.ask("cat /var/edgert/update/history.jsonl", TRIAL_S)
        return [json.loads(line) for line in said.splitlines()] if status == 0 else []

    def _ask(self, command: str) -> str:
        status, said = self._machine.ask(command)
        if status:
            raise BootError(f"expected {command} to succeed on the board, got status {status}: {said}")
        return said

    @staticmethod
    def _since(began: float) -> str:
        return f"{time.monotonic() - began:.0f}"


SCENES: Final[dict[str, Callable[[Updates], None]]] = {
    "signature": Updates._wrong_signature,
    "good": Updates._good,
    "gateway": Updates._broken_gateway,
    "init": Updates._no_init,
    "install-cut": Updates._cut_while_installing,
}
"""In the order in which they are played; each begins with a confirmed slot and ends with one."""
FLEET_SCENES: Final[dict[str, Callable[[Updates, Central], None]]] = {
    "fleet-update": Updates._by_fleet,
    "fleet-gateway": Updates._broken_by_fleet,
}
