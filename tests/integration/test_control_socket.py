"""The control socket of a real gateway, with slots and without: it says what was sent, and what the kernel says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgert.control.client import BlockingClient, call
from edgert.control.messages import VerbError
from tests.integration.rig import Gateway, Rig
from tests.integration.worlds import socket_of
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
MESSAGES = 2_000
POOLS: list[dict[str, Any]] = [
    {"fusion": "none"},
    {"slots": 2, "fusion": "none", "placement": "even"},
]


def sent(count: int) -> list[tuple[str, bytes]]:
    return [(f"s/d{n % 7}", b'{"time": %f, "v": %d}' % (1_700_000_000 + n * 0.01, n)) for n in range(count)]


DOCUMENT: dict[str, Any] = {
    "name": "counting",
    "checkpoint": {"interval_s": 0.5},
    "operators": {
        "readings": {"type": "mqtt_source", "topic": "s/{source}", "idle_timeout_s": 600.0},
        "odd": {"type": "filter", "input": "readings", "where": "v % 2 == 1"},
        "out": {"type": "publish", "input": "odd", "topic": "out/{source}"},
    },
}


def figures_when_done(gateway: Gateway) -> dict[str, Any]:
    """When all that was sent has gone through the flow, and no queue has more than a watermark."""
    seen: list[dict[str, Any]] = []

    def done() -> bool:
        seen[:] = [call(socket_of(gateway), "figures")]
        instances = seen[0]["flows"]["counting"]["instances"]
        rows = {name: one["rows_in"] for name, one in instances.items()}
        if any(one["queue_rows"] > 1 or one["head_age_s"] >= 5 for one in instances.values()):
            return False  # the ticks of a busy machine
        return bool(min(rows["readings"], rows["odd"], 2 * rows["out"]) >= MESSAGES)  # slots report at their own times

    wait_until(done, "all rows at the sink")
    return seen[0]


@pytest.mark.parametrize("pool", POOLS, ids=["one process", "two slots"])
def test_figures_say_what_was_sent_and_what_the_kernel_says(rig: Rig, pool: dict[str, Any]) -> None:
    gateway = rig.gateway(pool=pool)
    gateway.start_ready()
    assert rig.deploy(gateway, DOCUMENT)["accepted"]
    assert rig.publish(sent(MESSAGES)) == MESSAGES
    figures = figures_when_done(gateway)
    flow = figures["flows"]["counting"]
    instances = flow["instances"]
    counted = {name: (found["rows_in"], found["rows_out"]) for name, found in instances.items()}
    half = MESSAGES // 2
    assert counted == {"readings": (MESSAGES, MESSAGES), "odd": (MESSAGES, half), "out": (half, 0)}
    edges = {(edge["from"], edge["to"]): edge for edge in flow["edges"]}
    assert {ends: edge["rows"] for ends, edge in edges.items()} == {
        ("readings", "odd"): MESSAGES,
        ("odd", "out"): half,
    }
    assert all(100 * edge["rows"] < edge["bytes"] < 2_000 * edge["rows"] for edge in edges.values())
    assert 0 < flow["latency_s"] < 60
    assert (flow["version"], flow["plan"], flow["delivery"]) == (1, 0, "exactly-once")
    assert figures["gateway"] == "g1"
    assert figures["cpu_count"] == os.cpu_count()
    for found in instances.values():
        assert 0 < found["busy_s"] < 30
        assert 0 < found["turns"] <= MESSAGES
        assert found["queue_bytes"] == 0, "of a batch with nothing but a watermark, just given by a tick"
        assert found["head_age_s"] >= 0
    _threads_are_the_kernels(gateway, slots=pool.get("slots", 0))
    wait_until(lambda: _line(gateway)["condition"]["level"] == "good", "the next look at the flow")
    line = _line(gateway)
    assert (line["name"], line["rows_in"], line["rows_out"]) == ("counting", MESSAGES, half)
    assert line["condition"]["state"] == "running"
    assert line["slots"] == ([0, 1] if pool.get("slots") else [-1])
    assert call(socket_of(gateway), "status")["gateway"] == "g1"
    assert call(socket_of(gateway), "checkpoint")["committed"]
    _weights_can_be_given(socket_of(gateway))
    assert gateway.terminate() == 0
    assert not socket_of(gateway).exists()


def _line(gateway: Gateway) -> dict[str, Any]:
    """The one flow's."""
    (line,) = call(socket_of(gateway), "flows")
    return dict(line)


def _threads_are_the_kernels(gateway: Gateway, slots: int) -> None:
    """Every thread is there, with its role, its start, and its processor time; instances name the processes."""
    assert gateway.process is not None
    processes = {-1: gateway.process.pid}
    for found in call(socket_of(gateway), "figures")["flows"]["counting"]["instances"].values():
        processes[found["slot"]] = found["pid"]
    assert set(processes) == ({-1, *range(slots)} if slots else {-1})
    threads: list[dict[str, Any]] = []

    def agree() -> bool:
        threads[:] = call(socket_of(gateway), "figures")["threads"]
        tids = {int(tid) for pid in processes.values() for tid in os.listdir(f"/proc/{pid}/task")}
        return tids == {thread["tid"] for thread in threads}

    wait_until(agree, "the same threads")  # one may just have begun
    for slot, pid in processes.items():
        listed = {t["tid"]: t for t in threads if t["pid"] == pid}
        roles = [thread["role"] for thread in listed.values()]
        assert listed[pid]["role"] == ("loop" if slot < 0 else "reader")
        assert roles.count("worker") == (1 if slot >= 0 or not slots else 0)
        assert roles.count("store") == (1 if slot < 0 else 0)
        for tid, thread in listed.items():
            fields = Path(f"/proc/{pid}/task/{tid}/stat").read_text().rpartition(")")[2].split()
            now_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            assert thread["slot"] == slot
            assert thread["start_ticks"] == int(fields[19])
            assert thread["cpu_s"] <= now_s < thread["cpu_s"] + 5
        assert sum(thread["cpu_s"] for thread in listed.values()) > 0


def _weights_can_be_given(socket: Path) -> None:
    asked = {"flow": "counting", "weights": {"odd": 4, "out": 0.5}}
    assert call(socket, "weigh", asked) == {"flow": "counting", "weights": {"odd": 4.0, "out": 0.5}}
    found = call(socket, "figures")["flows"]["counting"]["instances"]
    assert {name: one["weight"] for name, one in found.items()} == {"readings": 1.0, "odd": 4.0, "out": 0.5}
    with pytest.raises(VerbError, match=r"expected a weight from 0\.001 to 1000, got 0"):
        call(socket, "weigh", {"flow": "counting", "weights": {"odd": 0}})
    with pytest.raises(VerbError, match=r"expected weights: \{operator: weight\}"):
        call(socket, "weigh", {"flow": "counting"})


def test_counters_do_not_go_back_when_a_slot_dies(rig: Rig) -> None:
    gateway = rig.gateway(pool=POOLS[1])
    gateway.start_ready()
    assert rig.deploy(gateway, DOCUMENT)["accepted"]
    rig.publish(sent(MESSAGES))
    before = figures_when_done(gateway)["flows"]["counting"]
    killed = before["instances"]["odd"]["pid"]
    os.kill(killed, 9)
    gateway.wait(
        lambda s: all(slot["running"] for slot in s["slots"]) and s["slots"][0]["restarts"] + s["slots"][1]["restarts"],
        "the slot",
    )
    rig.publish(sent(MESSAGES))
    with BlockingClient(socket_of(gateway)) as client:

        def all_came() -> bool:
            edges = client.call("figures")["flows"]["counting"]["edges"]
            return bool(sum(e["rows"] for e in edges) >= 2 * sum(e["rows"] for e in before["edges"]))

        wait_until(all_came, "as many rows again")
        after = client.call("figures")["flows"]["counting"]
    assert after["instances"]["odd"]["pid"] not in (killed, before["instances"]["readings"]["pid"])
    for name, found in before["instances"].items():
        for counter in ("rows_in", "rows_out", "turns", "busy_s"):
            assert after["instances"][name][counter] >= found[counter], (name, counter)


def test_the_socket_can_be_elsewhere_or_switched_off(rig: Rig, tmp_path: Path) -> None:
    elsewhere = rig.gateway("g1", control={"socket": str(tmp_path / "run" / "g1.sock")})
    off = rig.gateway("g2", control={"enabled": False})
    for gateway in (elsewhere, off):
        gateway.start_ready()
        assert not socket_of(gateway).exists()
    assert call(tmp_path / "run" / "g1.sock", "status")["gateway"] == "g1"


def test_a_gateway_whose_socket_is_taken_runs_on_without(rig: Rig, tmp_path: Path) -> None:
    path = str(tmp_path / "c.sock")
    first, second = (rig.gateway(name, control={"socket": path}) for name in ("g1", "g2"))
    first.start_ready()
    second.start_ready()
    assert f"the control socket {path} is served by another process already" in second.text()
    assert call(path, "status")["gateway"] == "g1"
    assert second.terminate() == 0
    assert call(path, "status")["gateway"] == "g1"
