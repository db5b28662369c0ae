"""The web server with a status of our own, over real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgert.control.server import ControlServer, Handler
from edgert.core.errors import EdgertError
from edgert.core.text.hosts import is_loopback
from gateway.status.history import Plot, PlotLine
from gateway.web.guard import host_name_untrusted
from gateway.web.health import reasons
from gateway.web.server import WebServer
from tests.gateway.web.web_rig import TIMEOUT_S, connect, get, get_another, read_head, request, serve
from tests.status_example import example_status, judged


def test_the_page_and_all_it_loads_come_from_the_gateway_itself() -> None:
    async def check(server: WebServer) -> None:
        page = await get(server, "/")
        assert page.status == 200
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        for path, kind in {
            "/page.js": "text/javascript",
            "/graph.js": "text/javascript",
            "/layout.js": "text/javascript",
            "/format.js": "text/javascript",
            "/elements.js": "text/javascript",
            "/scheduling.js": "text/javascript",
            "/fleet.js": "text/javascript",
            **dict.fromkeys(("/tiles.js", "/plot.js", "/flow.js", "/flows.js"), "text/javascript"),
            "/page.css": "text/css",
            "/icon.svg": "image/svg+xml",
        }.items():
            answer = await get(server, path)
            assert answer.status == 200, path
            assert answer.headers["content-type"].startswith(kind)
            text = answer.body.replace(b"http://www.w3.org/2000/svg", b"")
            assert b"http://" not in text, path
            assert b"https://" not in text, path

    serve(check)


def test_an_unchanged_file_is_not_sent_twice() -> None:
    async def check(server: WebServer) -> None:
        tag = (await get(server, "/page.js")).headers["etag"]
        again = await get(server, "/page.js", f"If-None-Match: {tag}")
        assert (again.status, again.body) == (304, b"")

    serve(check)


def test_status_is_what_the_gateway_says_as_strict_json() -> None:
    status = example_status()
    status["cpu_percent"] = float("nan")

    async def check(server: WebServer) -> None:
        answer = await get(server, "/api/status")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert json.loads(answer.body) == {**status, "cpu_percent": None}

    serve(check, lambda: judged(status))


def test_of_flows_that_are_folded_on_the_page_only_a_line_is_sent() -> None:
    status = example_status()
    flow = status["flows"][0]
    status["flows"] += [{**flow, "name": f"more-{number}"} for number in range(19)]
    whole = {name: judged(status)["flows"][0][name] for name in ("operators", "edges", "latest")}

    async def check(server: WebServer) -> None:
        reader, writer = await connect(server)
        writer.write(request("/api/events?whole=&whole=air", "localhost"))
        await read_head(reader)
        await reader.readuntil(b"data: ")
        told = json.loads(await reader.readuntil(b"\n\n"))
        writer.close()
        first, *others = told["flows"]
        assert {name: first[name] for name in whole} == json.loads(json.dumps(whole))
        assert len(others) == 19
        assert others[0]["condition"]["name"] == "more-0"
        assert "edges" not in others[0]
        assert [one["type"] for one in others[0]["operators"]] == ["mqtt_source"]
        assert len(json.dumps(others[0])) < len(json.dumps(first)) / 2

    serve(check, lambda: judged(status))


def test_a_plot_is_that_of_the_flow_and_column_and_404_of_none() -> None:
    asked: list[tuple[str, str]] = []

    def plot(flow: str, column: str) -> Plot | None:
        asked.append((flow, column))
        line = PlotLine(("s1",), [1.5, None])
        return Plot(flow, ["source"], ["mean"], "mean", [10.0, 20.0], [line], 0) if flow == "air" else None

    async def check() -> None:
        server = WebServer("127.0.0.1", 0, example_status, plot=plot)
        assert await server.start()
        found, none = [await get(server, f"/api/plot?flow={name}&column=mean") for name in ("air", "other")]
        await server.stop()
        assert json.loads(found.body)["lines"] == [{"key": ["s1"], "values": [1.5, None]}]
        assert none.status == 404
        assert b"expected a flow that runs here" in none.body

    asyncio.run(asyncio.wait_for(check(), TIMEOUT_S))
    assert asked == [("air", "mean"), ("other", "mean")]


def test_every_answer_forbids_foreign_content_and_other_origins() -> None:
    async def check(server: WebServer) -> None:
        for path in ("/", "/api/status", "/metrics", "/nowhere"):
            headers = (await get(server, path)).headers
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers

    serve(check)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9999", "[::1]:8080", "LOCALHOST:1"])
def test_names_of_loopback_are_answered(host: str) -> None:
    async def check(server: WebServer) -> None:
        assert (await get(server, "/api/status", host=host)).status == 200

    serve(check)


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example:8080", "192.168.1.5", "", "[fe80::1]"])
def test_a_foreign_name_that_leads_to_loopback_is_refused(host: str) -> None:
    async def check(server: WebServer) -> None:
        answer = await get(server, "/api/status", host=host)
        assert answer.status == 421
        assert b"g1" not in answer.body

    serve(check)


def test_a_gateway_that_is_bound_to_all_addresses_answers_to_any_name() -> None:
    async def check(server: WebServer) -> None:
        assert (await get(server, "/healthz", host="pi.local")).status == 200

    serve(check, host="0.0.0.0")


def test_metrics_are_prometheus_text_with_labels() -> None:
    async def check(server: WebServer) -> None:
        answer = await get(server, "/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        lines = answer.body.decode().splitlines()
        assert "# TYPE edgert_ingest_messages_total counter" in lines
        assert "edgert_ingest_messages_total 100.0" in lines
        assert 'edgert_operator_queue_rows{flow="air",operator="valid",type="filter"} 0.0' in lines
        assert 'edgert_dropped_rows_total{flow="air",operator="valid",reason="bad row"} 7.0' in lines

    serve(check)


def test_a_flow_that_drops_all_its_rows_as_late_is_a_warning_for_ten_seconds_and_then_503() -> None:
    status = example_status()
    (flow,) = status["flows"]

    async def check(server: WebServer) -> None:
        flow["dropping"] = [["minute", "late", 400, 9.0]]
        answer = await get(server, "/healthz")
        assert (answer.status, answer.body.splitlines()[0]) == (200, b"ready")
        assert b"- warning: flow air: minute has dropped all of its last 400 rows: late; is the clock" in answer.body
        flow["dropping"] = [["minute", "late", 450, 10.0]]
        answer = await get_another(server, "/healthz", answer)
        assert (answer.status, answer.body.splitlines()[0]) == (503, b"not ready")
        assert b"- flow air: minute has dropped all of its last 450 rows: late; is the clock" in answer.body
        told = json.loads((await get(server, "/api/status")).body)["flows"][0]["condition"]
        assert (told["level"], told["state"]) == ("bad", "drops all")
        flow["dropping"] = []
        assert (await get_another(server, "/healthz", answer)).body == b"ready\n"

    serve(check, lambda: judged(status))


def test_health_is_503_with_the_reason_until_the_broker_is_connected() -> None:
    status = example_status()
    status["ingest"].update(connected=False, error="connection refused")

    async def check(server: WebServer) -> None:
        answer = await get(server, "/healthz")
        assert answer.status == 503
        away = b"sensors' broker: 127.0.0.1:1883: connection refused\n"
        waits = b"- warning: flow air: last row 0 s ago: the sensors' broker is disconnected\n"
        assert answer.body == b"not ready\n- " + away + waits
        assert (await get(server, "/livez")).status == 200, "a restart would help nobody"
        status["ingest"].update(connected=True, error="")
        answer = await get_another(server, "/healthz", answer)
        assert answer.body == b"ready\n"
        status["central"].update(unacknowledged_s=40.0)
        answer = await get_another(server, "/healthz", answer)
        assert (answer.status, answer.body.splitlines()[0]) == (200, b"ready")
        assert b"- warning: central: 127.0.0.1:1883: connected, but no collector has acknowledged" in answer.body

    serve(check, lambda: judged(status))


def test_a_failing_checkpoint_makes_the_gateway_unready_but_a_central_side_that_is_away_does_not() -> None:
    status = example_status()
    status["central"].update(connected=False, error="connection refused")
    assert reasons(judged(status)) == []
    assert reasons(judged(status), "warning") == [
        "central: 127.0.0.1:1883: connection refused; 20 result rows in the outbox"
    ]
    status["checkpoint"]["error"] = "disk full"
    assert reasons(judged(status)) == ["checkpoint: disk full"]


def test_input_that_no_flow_takes_makes_the_gateway_unready() -> None:
    status = example_status()
    status["ingest"].update(paused_s=5.0)
    assert reasons(judged(status)) == []
    status["ingest"].update(refused={"x/+": "not authorized (0x87)"}, paused_s=31.4)
    status["flows"].append({"name": "lost", "state": "failed", "description": "its slots died"})
    assert reasons(judged(status)) == [
        (
            "sensors' broker: subscription to x/+ refused: not authorized (0x87); "
            "nothing is read for 31 s: what came before is not committed"
        ),
        "flow lost: is stopped: its slots died",
    ]


def test_a_taken_port_is_said_and_the_gateway_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        async def main() -> WebServer:
            server = WebServer("127.0.0.1", port, example_status)
            assert not await server.start()
            await server.stop()
            return server

        server = asyncio.run(main())
    assert server.url == ""
    assert f"expected to listen on 127.0.0.1:{port}, got: Address already in use" in server.error
    assert "goes on without it" in caplog.text


def test_the_server_leaves_the_signals_to_the_gateway() -> None:
    import signal

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)

    async def check(server: WebServer) -> None:
        await get(server, "/healthz")
        # asyncio.run itself takes SIGINT while it runs; SIGTERM tells.
        assert signal.getsignal(signal.SIGTERM) == before[1]

    serve(check)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_host_headers_are_taken_apart() -> None:
    assert host_name_untrusted(b"[::1]:80") == "::1"
    assert host_name_untrusted(b"A.b:80") == "a.b"
    assert host_name_untrusted(b"\xff") == "ÿ"
    assert is_loopback("127.0.0.5")
    assert not is_loopback("0.0.0.0")


def scheduling(tmp_path: Path, handlers: dict[str, Handler], asked: int = 1) -> list[dict[str, Any]]:
    """What /api/scheduling answers, with an agent that has these verbs (none: no agent at all)."""
    path, found = str(tmp_path / "agent.sock"), []

    async def main() -> None:
        agent = ControlServer(path, handlers)
        if handlers:
            await agent.start()
        server = WebServer("127.0.0.1", 0, example_status, agent_socket=lambda: path)
        assert await server.start()
        for _ in range(asked):
            answer = await get(server, "/api/scheduling")
            assert (answer.status, answer.headers["cache-control"]) == (200, "no-store")
            found.append(json.loads(answer.body))
        await server.stop()
        await agent.stop()

    asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))
    return found


def test_os_scheduling_is_what_the_agent_says_and_it_is_not_asked_for_every_page(tmp_path: Path) -> None:
    times: list[int] = []

    async def status(args: Mapping[str, Any]) -> Any:
        times.append(1)
        return {"policy": "qs", "operators": [{"operator": "air/in", "nice": 3}]}

    answers = scheduling(tmp_path, {"sched.status": status}, asked=3)
    assert answers == [{"agent": True, "policy": "qs", "operators": [{"operator": "air/in", "nice": 3}]}] * 3
    assert times == [1]


def test_a_board_without_an_agent_says_so_and_a_broken_one_why(tmp_path: Path) -> None:
    async def refuse(args: Mapping[str, Any]) -> Any:
        raise EdgertError("not now")

    async def other(args: Mapping[str, Any]) -> Any:
        return [1, 2]

    assert scheduling(tmp_path, {}) == [{"agent": False}]
    assert scheduling(tmp_path, {"sched.status": refuse}) == [{"agent": True, "error": "not now"}]
    (answer,) = scheduling(tmp_path, {"sched.status": other})
    assert answer["error"] == "expected the agent's sched.status, got [1, 2]"

    async def off(args: Mapping[str, Any]) -> Any:
        return {"enabled": False}

    assert scheduling(tmp_path, {"sched.status": off}) == [{"agent": False}], "sched.enabled = false is no fault"
