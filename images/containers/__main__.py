"""Boards of an image in containers: `python3 -m images.containers BOARD`, as root. No emulation, so it is fast.

Three boards find each other, run one flow, and go on when one of them is lost. Two have their certificates by
`edgert fleet provision boards.csv`, the third enrols by a token. Messages come to the broker of the first, the second
counts, results leave from the third. The second renews its certificate; its power is cut amid messages; it comes back,
and is lost for good. The first has an SSH key.

With `--cuts N` instead: one board, whose power is cut N times at random moments (`images/containers/cuts.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from images.check import memory
from images.containers.board import BRIDGE, Board, enter, mounted, wait
from images.containers.cuts import try_cuts
from images.programs import BuildError, run
from images.qemu.central import amiss
from images.qemu.machine import FIRST_S, MINUTES_S, BootError

ROOT: Final = Path(__file__).resolve().parents[2]
NET: Final = "10.77.0"
NAMES: Final = ("g1", "g2", "g3")
EDGERT: Final = "/opt/edgert/bin/edgert"
MESSAGES: Final = 60
"""In a minute, one each second (event time)."""
SPREAD_S: Final = 12.0
"""Messages of the minute in which a board is lost come for so long."""
START_S: Final = 20.0
"""The latest moment of a power cut amid a start: one takes some 12 s."""
SERVICE: Final = f"https://{NET}.1:8443"
COMMON: Final = f"""
gateway.fleet = "farm"
broker.listen = "0.0.0.0"
broker.control = true
agent.discovery = "mdns"
links.enabled = true
enrolment.url = "{SERVICE}"
"""
OWN: Final = """
network.address = "{address}/24"
agent.bind = "{address}"
links.listen = "{address}"
"""
"""For the board with a token, which is not in the table."""
RENEW: Final = """
[Service]
ExecStart=
ExecStart=/usr/bin/python3 -P -c "from datetime import *; from provisioning import renewal; \
print(renewal.renew(renewal.STORED, datetime.now(UTC) + timedelta(days=1700)))"
"""
"""For the unit of a board's renewal: the last third of its certificate's five years has begun."""
FLOW: Final = """
name = "{name}"
[operators.readings]
type = "mqtt_source"
topic = "{name}/{{source}}"
[operators.by_source]
type = "key_by"
input = "readings"
keys = ["source"]
[operators.seconds]
type = "tumbling_window"
input = "by_source"
size_s = 10.0
aggregates = {{ n = "count()" }}
[operators.out]
type = "publish"
input = "seconds"
topic = "results/{name}"
"""


def say(text: str) -> None:
    print(f"boards: {text}", flush=True)


class Client:
    """Outside of the boards: sends to the broker of one, and hears the results of a flow from another's."""

    def __init__(self, flow: str, to: Board, of: Board) -> None:
        self.flow, self.minutes = flow, list[int]()
        self.found: dict[int, int] = {}
        """Start of a window -> messages counted in it."""
        self.again = 0
        self._sender, self._hearer = self._connected(to), self._connected(of)
        self._hearer.on_message = self._on_message
        self._hearer.subscribe(f"results/{flow}", qos=1)

    @staticmethod
    def _connected(board: Board) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        client.connect(board.address)
        client.loop_start()
        return client

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        row = json.loads(message.payload)
        start = int(row["window_start"])
        self.again += start in self.found
        self.found[start] = row["n"]

    def send(self, spread_s: float = 0.0) -> None:
        """The messages of a further minute; returns when the broker has acknowledged them."""
        minute = self.minutes[-1] + MINUTES_S if self.minutes else FIRST_S
        self.minutes.append(minute)
        for number in range(MESSAGES):
            payload = json.dumps({"time": minute + number, "v": number}).encode()
            last = self._sender.publish(f"{self.flow}/probe", payload, qos=1)
            time.sleep(spread_s / MESSAGES)
        last.wait_for_publish()

    def counted(self) -> str:
        """Waits for the results of all minutes."""
        try:
            wait(lambda: not amiss(self.found, self.minutes), "results")
        except BootError as error:
            raise BootError(f"{error}; window start -> too many or few: {amiss(self.found, self.minutes)}") from None
        return f"{sum(self.found.values())} messages counted, lost 0, doubled 0 (results that came again: {self.again})"

    def close(self) -> None:
        self._sender.loop_stop()
        self._hearer.loop_stop()


class Boards:
    """Three of an image: two provisioned from a table, the third by a token, for which a service runs outside."""

    def __init__(self, images: Path, folder: Path, ending: ExitStack) -> None:
        root, data = mounted(images, folder, ending), images / "data.ext4"
        self._key = folder / "me"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", self._key)
        self._all = [Board(name, f"{NET}.{number}", root, data, folder) for number, name in enumerate(NAMES, 11)]
        *in_table, by_token = self._all
        keys = [self._key.with_suffix(".pub").read_text().strip(), ""]
        rows = [
            f"{board.name},{board.address}/24,{board.address},{board.address},{key}"
            for board, key in zip(in_table, keys, strict=True)
        ]
        head = "id,network.address,agent.bind,links.listen,ssh.keys"
        (folder / "boards.csv").write_text("\n".join([head, *rows]) + "\n")
        (folder / "common.toml").write_text(COMMON)
        (folder / "own.toml").write_text(COMMON + OWN.format(address=by_token.address))
        edgert = (sys.executable, "-m", "edgert", "fleet")
        ca, out = ("--ca", folder / "ca"), ("--out", folder / "out")
        run(*edgert, "ca", "init", folder / "ca", "--fleet", "farm")
        run(*edgert, "ca", "server", f"{NET}.1", *ca, "--out", folder / "service")
        run(*edgert, "provision", folder / "boards.csv", *ca, *out, "--common", folder / "common.toml")
        run(*edgert, "token", by_token.name, *ca, *out, "--common", folder / "own.toml")
        run("ip", "addr", "add", f"{NET}.1/24", "dev", BRIDGE)
        serving = [*edgert, "serve", *map(str, ca), "--server", str(folder / "service"), "--listen", f"{NET}.1"]
        ending.callback(subprocess.Popen(serving).terminate)
        for board in self._all:
            board.provision(folder / "out" / board.name)
            if list((folder / "out" / board.name).iterdir()):
                raise BootError(f"expected the file of {board.name} to be wiped")

    def __iter__(self) -> Iterator[Board]:
        return iter(self._all)

    def see(self, *lost: str) -> str:
        """Waits until all others see the fleet so."""
        expected = {name: "dead" if name in lost else "alive" for name in NAMES}
        began = time.monotonic()
        for board in self._all:
            if board.name not in lost:
                wait(lambda: _states(board) == expected, f"{expected}, seen by {board.name}")  # noqa: B023
        return f"after {time.monotonic() - began:.0f} s"

    def ssh(self, board: Board, *, with_key: bool = True) -> str:
        """The last line of what `edgert status` says over SSH, or of why it cannot be asked."""
        how = ["BatchMode=yes", "StrictHostKeyChecking=accept-new", f"UserKnownHostsFile={self._key}.hosts"]
        identity = self._key if with_key else "/dev/null"
        command = ["ssh", "-F", "none", *(f"-o{one}" for one in how), "-oIdentitiesOnly=yes", "-i", identity]
        done = subprocess.run(
            [*command, f"root@{board.address}", "edgert status --json >/dev/null && echo status"],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        return ["", *(done.stdout or done.stderr).strip().splitlines()][-1]

    def renew(self, board: Board) -> str:
        """Has the unit of a board renew its certificate by the service, as if its last third had begun."""
        unit = "edgert-renewal.service"
        board.write("tmp/now.conf", RENEW)
        where = f"/run/systemd/system/{unit}.d"
        begin = f"mkdir {where} && cp /var/tmp/now.conf {where} && systemctl daemon-reload && systemctl start {unit}"
        status, said = board.ask("sh", "-c", begin)
        told = board.ask("journalctl", "-b", "-u", unit, "-o", "cat", "--grep", "a new certificate")[1].strip()
        if status != 0 or not told:
            raise BootError(f"expected a new certificate on {board.name}, got {said or told}")
        return told

    def try_ssh(self) -> str:
        """Tries the board with a key, the same without it, and a board that was given none."""
        first, second, _ = self._all
        wait(lambda: self.ssh(first) == "status", "a shell over SSH")
        refused, closed = self.ssh(first, with_key=False), self.ssh(second)
        if "Permission denied (publickey)" not in refused or "Connection refused" not in closed:
            raise BootError(f"expected SSH for the owner of a key alone, got {refused!r} and {closed!r}")
        return f"{first.name} lets in the owner of its key alone; {second.name}, without keys, has no SSH"

    def deploy(self, flow: str, first: Board, **on: str) -> None:
        """Asks the agent of board `first`."""
        first.write(f"tmp/{flow}.toml", FLOW.format(name=flow))
        self.until_done(first, "deploy", f"/var/tmp/{flow}.toml", *(f"--place={name}={at}" for name, at in on.items()))

    def until_done(self, board: Board, *action: str) -> None:
        """`edgert fleet ACTION` on a board, again until the fleet is ready for it."""
        answers: list[str] = []

        def done() -> bool:
            status, said = board.ask(EDGERT, "fleet", *action)
            answers.append(said.strip())
            return status == 0

        try:
            wait(done, f"edgert fleet {action[0]}")
        finally:
            say(answers[-1])


def _states(board: Board) -> dict[str, str]:
    status, said = board.ask(EDGERT, "fleet", "status", "--json")
    return {one["gateway"]: one["state"] for one in json.loads(said)["members"]} if status == 0 else {}


def try_boards(images: Path, folder: Path) -> None:
    """Raises `BootError` for what does not happen in time."""
    with ExitStack() as stack:
        boards = Boards(images, folder, stack)
        g1, g2, g3 = boards
        say("two boards are provisioned by one command, a third has a token; their files are wiped")
        for board in boards:
            stack.callback(board.cut)
            board.start()
        say(f"each of them sees all three {boards.see()}; nobody told one of another")
        say("so the third has enrolled")
        say(boards.try_ssh())
        boards.deploy("counts", g1, seconds="g2", out="g3")
        client = Client("counts", g1, g3)
        stack.callback(client.close)
        client.send()
        say(client.counted())

        say(f"g2: {boards.renew(g2)}")
        client.send()
        say(client.counted())
        client.send(SPREAD_S)
        g2.cut()
        client.send(SPREAD_S)
        say(f"g2 is cut off amid messages: the others see it {boards.see('g2')}")
        boards.deploy("others", g3, seconds="g1", out="g1")
        other = Client("others", g3, g1)
        stack.callback(other.close)
        other.send()
        say(f"while g2 is away: {other.counted()}")
        client.send()
        g2.start()
        say(f"g2 is started again: all see it {boards.see()}")
        client.send()
        say(client.counted())

        g2.cut()
        say(f"g2 is lost for good: the others see it {boards.see('g2')}")
        began = time.monotonic()
        boards.until_done(g1, "forget", "g2")
        say(f"forgotten after {time.monotonic() - began:.0f} s")
        boards.until_done(g1, "remove", "counts")
        boards.deploy("counts", g1, seconds="g3", out="g3")
        anew = Client("counts", g1, g3)
        stack.callback(anew.close)
        anew.send()
        say(anew.counted())


def main(argv: Sequence[str] | None = None) -> int:
    """Tries one image; returns the exit status."""
    parser = argparse.ArgumentParser("images.containers", description="Three boards of an image run one flow.")
    parser.add_argument("board", help="of this machine's architecture")
    parser.add_argument("--images", type=Path, help="folder of the image (build/images/BOARD)")
    parser.add_argument("--cuts", type=int, default=0, help="instead: power cuts of one board, so many")
    parser.add_argument("--seed", type=int, default=1, help="of their random moments (default: 1)")
    args = parser.parse_args(argv)
    images = (args.images or ROOT / "build" / "images" / args.board).absolute()
    began = time.monotonic()
    try:
        enter("images.containers", sys.argv[1:] if argv is None else argv)
        say(f"{args.board}; load {os.getloadavg()[0]:.1f}")
        with tempfile.TemporaryDirectory(prefix="edgert-boards-", dir=memory()) as folder:
            if args.cuts:
                chance = random.Random(args.seed)
                try_cuts(images, Path(folder), [chance.random() for _ in range(args.cuts)], START_S)
            else:
                try_boards(images, Path(folder))
    except (BootError, BuildError) as error:
        print(f"boards: {error}", file=sys.stderr)
        return 1
    say(f"all of it took {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
