"""Several gateways linked to each other, and one flow over all of them: the parts are deployed over their control
sockets, as the agents do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from agent.fleet.flows import ASK_S
from benchmarks.ports import free_port
from edgert.control.client import BlockingClient
from tests.integration.rig import Gateway, Rig
from tests.waiting import wait_until


class CoordinatorDied(Exception):
    """At a step of a change of plan."""


class LinkedGateways:
    """Gateways by name, linked to each other."""

    def __init__(self, gateways: Mapping[str, Gateway], addresses: Mapping[str, tuple[str, int]]) -> None:
        """`addresses`: where each listens for the others."""
        self.gateways = dict(gateways)
        self.addresses = dict(addresses)

    def start(self) -> None:
        for gateway in self.gateways.values():
            gateway.start_ready()
        self.link()

    def link(self) -> None:
        """Tells every gateway where the others listen."""
        for name in self.gateways:
            self.tell_peers(name)

    def tell_peers(self, name: str) -> None:
        addresses = {other: list(address) for other, address in self.addresses.items() if other != name}
        self.ask(name, "peers", {"peers": addresses})

    def restart(self, name: str) -> None:
        self.gateways[name].start_ready()
        self.tell_peers(name)

    def ask(self, name: str, verb: str, args: Mapping[str, Any]) -> Any:
        with BlockingClient(self.gateways[name].data / "control.sock", ASK_S) as client:
            return client.call(verb, args)

    def deploy(self, document: Mapping[str, Any], on: Mapping[str, str], plan: int = 1) -> None:
        """`on`: operator → gateway."""
        assignment = {operator: [gateway, -1] for operator, gateway in on.items()}
        for name in sorted(set(on.values())):
            self.ask(name, "part.deploy", {"document": document, "assignment": assignment, "plan": plan})

    def remove(self, name: str, flow: str) -> None:
        """Ends the gateway's part of the flow."""
        fence = self.part(name, flow)["fence"]
        assert self.ask(name, "part.remove", {"flow": flow, "fence": fence})["removed"]

    def part(self, name: str, flow: str) -> dict[str, Any]:
        """What the gateway says of its part of a flow; empty where it has none."""
        found: dict[str, Any] = self.ask(name, "part.status", {}).get(flow, {})
        return found

    def move(
        self,
        document: Mapping[str, Any],
        before: Mapping[str, str],
        on: Mapping[str, str],
        plan: int,
        step: Callable[[], None] = lambda: None,
    ) -> float:
        """Changes the plan as a coordinator does; returns how long the flow stood still, seconds. `step` is called
        before each request, and may end the coordinator by what it raises."""
        flow, fence = document["name"], {"fence": plan}

        def ask(name: str, verb: str, args: Mapping[str, Any]) -> Any:
            step()
            return self.ask(name, verb, args)

        stopped = {name: ask(name, "part.stop", {"flow": flow, **fence}) for name in sorted(set(before.values()))}
        exports = []
        for name in stopped:
            leaving = [operator for operator, at in before.items() if at == name != on[operator]]
            taken = {other: one["links"][name] for other, one in stopped.items() if name in one["links"]}
            exports.append(ask(name, "part.export", {"flow": flow, "operators": leaving, "taken": taken}))
        assignment = {operator: [gateway, -1] for operator, gateway in on.items()}
        everywhere = sorted({*before.values(), *on.values()})
        for name in everywhere:
            arguments = {"document": document, "assignment": assignment, "plan": plan, "imports": exports}
            ask(name, "part.prepare", {**arguments, **fence})
        commit = {"flow": flow, "plan": plan, **fence}
        return max(float(ask(name, "part.commit", commit)["pause_s"]) for name in everywhere)

    def finish(self, flow: str, everywhere: Iterable[str], plan: int, fence: int) -> bool:
        """Brings a change of plan to its end whose coordinator is gone, as the next one does; whether it was made."""
        parts = {name: self.part(name, flow) for name in everywhere}
        committed = any(part.get("plan") == plan and "prepared_plan" not in part for part in parts.values())
        prepared = all(part.get("prepared_plan") == plan or part.get("plan") == plan for part in parts.values())
        verb = "part.commit" if committed or prepared else "part.abort"
        for name in parts:
            self.ask(name, verb, {"flow": flow, "plan": plan, "fence": fence})
        return committed or prepared

    def end(self, rig: Rig, flow: str, sent: int, order: Sequence[str]) -> None:
        """Ends a flow from its source, on the first gateway of `order`, on, so that nothing stays on the way; `rig` has
        the table of its results. `sent`: messages that the source takes in first; 0: all, however many."""
        first = self.gateways[order[0]]
        if sent:
            first.wait(lambda s: s["ingest"]["messages"] >= sent, f"{sent} messages")
            first.wait(lambda s: not s["ingest"]["unacknowledged"], "the acknowledgements")
        else:
            first.settle()
        for name, after in zip(order, (*order[1:], ""), strict=True):
            self.remove(name, flow)
            if after:
                wait_until(lambda name=name: not self.waiting(name), f"the batches of {name} at {after}")  # type: ignore[misc]
                self.ask(after, "checkpoint", {})
        for gateway in self.gateways.values():  # results were made wherever a sink ran
            rig.drained(gateway)

    def waiting(self, name: str) -> int:
        """Batches of a gateway that wait for others."""
        return sum(one["batches"] for one in self.ask(name, "status", {})["links"]["waiting"])


class Boards(LinkedGateways):
    """Gateways g1, g2, ... of one rig, on loopback."""

    def __init__(self, rig: Rig, number: int, slots: Sequence[int] = (), **settings: dict[str, Any]) -> None:
        addresses = {f"g{n}": ("127.0.0.1", free_port()) for n in range(1, number + 1)}
        gateways = {}
        for at, (name, (_, port)) in enumerate(addresses.items()):
            pool = {"slots": slots[at] if slots else 0}
            gateways[name] = rig.gateway(name, links={"enabled": True, "port": port}, pool=pool, **settings)
        super().__init__(gateways, addresses)
