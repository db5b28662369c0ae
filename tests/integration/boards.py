"""Several gateways linked to each other, and one flow over all of them: the parts are deployed over their control
sockets, as the agents do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgert.control.client import BlockingClient
from tests.brokers import free_port
from tests.integration.rig import Gateway, Rig


class Boards:
    """Gateways g1, g2, ... of one rig."""

    def __init__(self, rig: Rig, number: int, slots: Sequence[int] = (), **settings: dict[str, Any]) -> None:
        self.gateways: dict[str, Gateway] = {}
        self.ports = {f"g{n}": free_port() for n in range(1, number + 1)}
        for at, (name, port) in enumerate(self.ports.items()):
            pool = {"slots": slots[at] if slots else 0}
            self.gateways[name] = rig.gateway(name, links={"enabled": True, "port": port}, pool=pool, **settings)

    def start(self) -> None:
        for gateway in self.gateways.values():
            gateway.start_ready()
        self.link()

    def link(self) -> None:
        """Tells every gateway where the others listen."""
        for name in self.gateways:
            self.tell_peers(name)

    def tell_peers(self, name: str) -> None:
        addresses = {other: ["127.0.0.1", port] for other, port in self.ports.items() if other != name}
        self.ask(name, "peers", {"peers": addresses})

    def restart(self, name: str) -> None:
        self.gateways[name].start_ready()
        self.tell_peers(name)

    def ask(self, name: str, verb: str, args: Mapping[str, Any]) -> Any:
        with BlockingClient(self.gateways[name].data / "control.sock") as client:
            return client.call(verb, args)

    def deploy(self, document: Mapping[str, Any], on: Mapping[str, str], plan: int = 1) -> None:
        """`on`: operator → gateway."""
        assignment = {operator: [gateway, -1] for operator, gateway in on.items()}
        for name in sorted(set(on.values())):
            self.ask(name, "part.deploy", {"document": document, "assignment": assignment, "plan": plan})
