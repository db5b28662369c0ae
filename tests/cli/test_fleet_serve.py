"""What the service of the fleet's CA refuses, and what it costs, over TLS on loopback."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from edgert.boards import files
from edgert.boards.authority import MOST_A_DAY, Issued
from edgert.boards.certificates import new_key
from edgert.boards.signing_requests import MOST_BYTES as MOST_REQUEST
from edgert.boards.signing_requests import RENEW, signing_request
from edgert.cli.fleet import https_server
from edgert.cli.fleet.https_server import MOST_BYTES, MOST_CONNECTIONS, HttpsServer
from edgert.cli.main import main
from tests.provisioning.signing_world import HOST, LIFE, LONG_AGO, NOW, SigningWorld


class Client:
    """Asks the service, with the certificate of a board or another one, or with none."""

    def __init__(self, world: SigningWorld, server: HttpsServer) -> None:
        self.world, self.port = world, server.server_port
        self.board = world.authority().board("g1", LONG_AGO, LIFE)

    def connect(self, own: Issued | None = None) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=str(self.world.ca / "root.pem"))
        if own is not None:
            path = self.world.folder / "own.pem"
            files.write(path, own.certificate + own.key)
            context.load_cert_chain(path)
        return context.wrap_socket(socket.create_connection((HOST, self.port)), server_hostname=HOST)

    def send(self, content: bytes, own: Issued | None = None) -> bytes:
        """All that the service answers to bytes."""
        answer = b""
        with self.connect(own) as connection:
            try:
                connection.sendall(content)
                while part := connection.recv(65_536):
                    answer += part
            except OSError as error:
                answer += str(error).encode()
        return answer

    def post(self, body: bytes, own: Issued | None = None, path: str = RENEW) -> tuple[int, bytes]:
        head = f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        answer = self.send(head + body, own)
        start, _, content = answer.partition(b"\r\n\r\n")
        return int(start.split()[1]) if start.startswith(b"HTTP/") else 0, content or answer


@pytest.fixture
def world(tmp_path: Path) -> SigningWorld:
    return SigningWorld(tmp_path)


@pytest.fixture
def server(world: SigningWorld) -> Iterator[HttpsServer]:
    with world.serving() as server:
        yield server


@pytest.fixture
def client(world: SigningWorld, server: HttpsServer) -> Client:
    return Client(world, server)


def request(name: str) -> bytes:
    return signing_request("farm", name, new_key())


def test_a_board_gets_a_certificate_for_its_own_name_alone(client: Client) -> None:
    client.world.authority().board("g2", NOW, LIFE)
    assert client.post(request("g1"), client.board)[0] == 200
    status, why = client.post(request("g2"), client.board)
    assert (status, why) == (
        403, b"expected a signing request of g1, whose certificate was shown, got one of g2\n"
    )  # fmt: skip
    assert len(client.world.authority().certificates("g2")) == 1


def test_who_is_no_board_is_refused(client: Client, tmp_path: Path) -> None:
    authority = client.world.authority()
    (tmp_path / "other").mkdir()
    stranger = SigningWorld(tmp_path / "other").authority().board("g1", NOW, LIFE)
    for own, expected in (
        (None, b"expected the certificate of a board, got none"),
        (authority.user("ops", NOW, LIFE), b"@user/ops"),
    ):
        status, why = client.post(request("g1"), own)
        assert (status, expected in why) == (403, True)
    for refused_by_tls in (
        stranger,
        authority.server(["broker"], NOW, LIFE),
        authority.updates("release", NOW, LIFE),
        authority.board("old", NOW - 2 * LIFE, LIFE),
    ):
        assert client.post(request("g1"), refused_by_tls)[0] == 0
    assert client.world.service.refused == 2
    assert len(client.world.authority().certificates("g1")) == 1


def test_a_certificate_that_the_ca_has_no_record_of_is_refused(client: Client) -> None:
    """As it could not be revoked."""
    for path in (client.world.ca / "issued/g1").iterdir():
        path.unlink()
    assert client.post(request("g1"), client.board)[0] == 403


def test_a_name_is_revoked_at_once(client: Client) -> None:
    assert client.post(request("g1"), client.board)[0] == 200
    client.world.authority().revoke("g1", NOW)
    assert client.post(request("g1"), client.board)[0] == 403


def test_a_board_that_was_taken_over_cannot_fill_the_disk(client: Client) -> None:
    client.world.authority().board("g2", LONG_AGO, LIFE)
    found = [client.post(request("g1"), client.board)[0] for _ in range(MOST_A_DAY + 2)]
    assert found == [200] * MOST_A_DAY + [403] * 2
    client.world.service.wall = lambda: NOW + timedelta(days=2)
    assert client.post(request("g1"), client.board)[0] == 200


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", b""),
        (b"\0" * 100 + b"\r\n\r\n", b"400"),
        (b"POST /v1/renew HTTP/1.1\r\n\r\n", b"400"),
        (b"POST /v1/renew HTTP/1.1\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /v1/renew HTTP/1.1\r\nContent-Length: 1_0\r\n\r\n", b"400"),
        (b"POST /v1/renew HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"400"),
        (b"POST /v1/renew HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"403"),
        (b"POST /etc/passwd HTTP/1.1\r\nContent-Length: 0\r\n\r\n", b"404"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"DELETE /v1/renew HTTP/1.1\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 10_000, b""),
        (b"G" * 3 * MOST_BYTES, b""),
        (b"POST /v1/renew HTTP/1.1\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000, b"403"),
    ],
)
def test_requests_that_are_none(client: Client, content: bytes, expected: bytes) -> None:
    if not content:
        with client.connect():
            pass
    else:
        assert expected in client.send(content, client.board)
    assert client.post(request("g1"), client.board)[0] == 200  # the others are served


def test_a_request_has_a_bound(client: Client) -> None:
    status, why = client.post(b"x" * (MOST_REQUEST + 1), client.board)
    assert (status, why) == (403, b"expected a signing request of at most 8192 bytes, got 8193\n")


def test_a_silent_connection_is_ended_and_one_that_trickles_too(client: Client, server: HttpsServer) -> None:
    with socket.create_connection((HOST, client.port)) as silent, client.connect() as trickling:
        trickling.sendall(b"POST ")
        server.clock = lambda: time.monotonic() + 2 * https_server.WITHIN_S
        silent.settimeout(60)
        assert silent.recv(1) == b""
        trickling.settimeout(60)
        try:
            assert trickling.recv(1) == b""
        except OSError:  # an end without TLS's goodbye
            pass


def test_connections_beyond_the_limit_end_the_oldest_of_their_address(client: Client, server: HttpsServer) -> None:
    server.within_s = 3600.0  # it is not for its age
    held = [socket.create_connection((HOST, client.port)) for _ in range(MOST_CONNECTIONS + 1)]
    held[0].settimeout(60)
    assert held[0].recv(1) == b""
    assert client.post(request("g1"), client.board)[0] == 200
    for one in held:
        one.close()


def test_a_fault_of_our_own_is_not_silent(
    client: Client, capfd: pytest.CaptureFixture[str], server: HttpsServer
) -> None:
    server.answer_untrusted = lambda asked: 1 / 0  # type: ignore[assignment,return-value]
    assert client.post(request("g1"), client.board)[0] == 0
    assert "ZeroDivisionError" in capfd.readouterr().err
    client.send(b"\0\r\n\r\n")
    assert capfd.readouterr().err == ""


def test_refusals_are_counted_and_told_once_a_second(client: Client) -> None:
    service, at = client.world.service, [0.0]
    service.clock = lambda: at[0]
    for _ in range(3):
        client.post(request("g1"))
    at[0] = 1.0
    client.post(request("g1"))
    assert service.refused == 4
    assert [line.partition(":")[0] for line in client.world.said] == ["refused (1 in all)", "refused (4 in all)"]


def test_the_command_says_what_it_cannot_use(world: SigningWorld, capsys: pytest.CaptureFixture[str]) -> None:
    def serve(*arguments: str) -> int:
        return main(["fleet", "serve", "--ca", str(world.ca), "--listen", HOST, *arguments])

    assert serve("--server", str(world.folder / "none")) == 1
    assert "none/server.pem" in capsys.readouterr().err
    assert serve("--server", str(world.folder / "server"), "--port", "99999") == 1
    assert serve("--server", str(world.folder / "server"), "--days", "0") == 1
    assert "--days" in capsys.readouterr().err


def test_the_command_serves_until_it_is_stopped(
    world: SigningWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(server: HttpsServer) -> None:
        assert server.server_port
        raise KeyboardInterrupt

    monkeypatch.setattr(HttpsServer, "serve_forever", stopped)
    arguments = ["--ca", str(world.ca), "--server", str(world.folder / "server"), "--listen", HOST, "--port", "0"]
    assert main(["fleet", "serve", *arguments]) == 0
    assert "fleet farm: certificates of boards are signed on port" in capsys.readouterr().err
