"""Real brokers for integration tests: processes of their own, on loopback, on a port that was free."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ports import free_port
from tests.waiting import wait_until

START_TIMEOUT_S = 60.0
MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def wait_listening(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when `port` takes connections; RuntimeError with the log's end if the process dies or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
            return
        except OSError:
            time.sleep(0.01)
    raise RuntimeError(f"expected a broker on port {port}, got exit {process.poll()}: {log.read_text()[-2000:]}")


@dataclass(frozen=True)
class Certificates:
    """Made by openssl for one test run: an authority, a server (127.0.0.1, localhost) and a client."""

    folder: Path

    def __post_init__(self) -> None:
        names = "subjectAltName=IP:127.0.0.1,DNS:localhost"
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        # Python 3.13 checks strictly: an authority must say that it may sign
        usage = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        self._openssl(
            "req", "-x509", *key, "-subj", "/CN=test authority", *usage, "-keyout", "ca.key", "-out", "ca.crt"
        )
        for name, extension in (("server", names), ("client", "extendedKeyUsage=clientAuth")):
            self._openssl(
                "req", "-x509", *key, "-subj", f"/CN={name}", "-addext", extension, "-CA", "ca.crt", "-CAkey", "ca.key",
                "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", f"{name}.key", "-out", f"{name}.crt",
            )  # fmt: skip
        for path in self.folder.iterdir():
            path.chmod(0o644)

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def path(self, name: str) -> str:
        """Of `ca.crt`, `server.crt`, `server.key`, `client.crt` or `client.key`."""
        return str(self.folder / name)


class Broker:
    """One broker process. It keeps its port, its files and its settings over `stop`, `kill` and `start`."""

    host = "127.0.0.1"

    def __init__(self, command: list[str], port: int, folder: Path) -> None:
        self.port = port
        self.folder = folder
        self.log = folder / "broker.log"
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder)
        wait_listening(self.port, self._process, self.log)

    def stop(self) -> None:
        """In good order (SIGTERM): Mosquitto then saves its sessions, if it has persistence."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would (SIGKILL)."""
        self._end(signal.SIGKILL)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It does nothing meanwhile, as on a busy machine."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if self._process is not None:  # it was not killed meanwhile
                self._process.send_signal(signal.SIGCONT)

    def save(self) -> None:
        """Mosquitto with persistence writes all that it knows to its file. Returns when that is done."""
        assert self._process is not None
        stored = self.folder / "mosquitto.db"

        def written() -> int:
            return stored.stat().st_ino if stored.exists() else 0  # each time it is a new file

        for _ in range(2):  # the first may be one that it had begun before
            before = written()
            self._process.send_signal(signal.SIGUSR1)
            wait_until(lambda: written() != before, "Mosquitto's storage")  # noqa: B023

    def forget(self) -> None:
        """Deletes what Mosquitto has stored; to be called while it is down."""
        (self.folder / "mosquitto.db").unlink(missing_ok=True)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def reload(self) -> None:
        """SIGHUP: Mosquitto reads its settings, certificates and list of revoked ones again, soon."""
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def restart(self) -> None:
        self.stop()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(60.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


def mosquitto(
    folder: Path,
    *,
    persistence: bool = False,
    users: dict[str, str] | None = None,
    certificates: Certificates | None = None,
    client_certificates: bool = False,
    settings: str = "",
) -> Broker:
    """A Mosquitto that is not started yet. `users`: passwords by name (else anyone may connect); `certificates`: TLS;
    `client_certificates`: only with one of the authority's; `settings`: more lines for its configuration file."""
    assert MOSQUITTO is not None
    port = free_port()
    lines = [f"listener {port} 127.0.0.1", f"allow_anonymous {'false' if users else 'true'}", "log_type all"]
    if os.geteuid() == 0:
        lines.append("user root")  # or it could not write into our folder
    if persistence:
        lines += ["persistence true", f"persistence_location {folder}/", "autosave_interval 1"]
    if users:
        passwords = folder / "passwords"
        passwords.write_text("".join(f"{name}:{password}\n" for name, password in users.items()))
        subprocess.run(["mosquitto_passwd", "-U", str(passwords)], check=True, capture_output=True)
        lines.append(f"password_file {passwords}")
    if certificates:
        lines += [f"certfile {certificates.path('server.crt')}", f"keyfile {certificates.path('server.key')}"]
        lines += [f"cafile {certificates.path('ca.crt')}", f"require_certificate {str(client_certificates).lower()}"]
    file = folder / "mosquitto.conf"
    file.write_text("\n".join([*lines, settings, ""]))
    return Broker([MOSQUITTO, "-c", str(file)], port, folder)


_AMQTT = """
import asyncio, sys
from amqtt.broker import Broker

CONFIG = {
    "listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:" + sys.argv[1]}},
    "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": sys.argv[2] == "anonymous"}},
}

async def main():
    broker = Broker(CONFIG)
    await broker.start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


def amqtt(folder: Path, *, anonymous: bool = True) -> Broker:
    """The embedded broker of the demo (3.1.1 only), not started yet. Where anonymous clients may connect, it keeps no
    session of any client; else each client needs a user name."""
    port = free_port()
    return Broker([sys.executable, "-c", _AMQTT, str(port), "anonymous" if anonymous else "named"], port, folder)
