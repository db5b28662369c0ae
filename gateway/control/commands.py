"""The commands of a gateway: over the control plane (`cmd/<verb>`) and over its control socket."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edgert.core.clock import Clock
from edgert.core.errors import EdgertError, show
from edgert.core.settings.gateway import Pool
from edgert.flow.plan import Location, operator_copies
from edgert.flow.versions.kept_state import NOTHING_REPLACED
from gateway.control import figures
from gateway.flows.flows import Flows
from gateway.flows.guests import Guests
from gateway.flows.parts import Parts
from gateway.flows.plans import FLEET, compared
from gateway.hosts.host import Host
from gateway.status.status import Status

if TYPE_CHECKING:
    from gateway.links.flow_links import FlowLinks  # which costs memory, so only where it is wanted

COMMAND_S: Final = 10.0
"""Seconds for which a command waits for a change of a flow."""
Command = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""From its arguments."""


class Commands:
    """Each raises `EdgertError` where it cannot be done."""

    def __init__(
        self,
        gateway: str,
        pool: Pool,
        flows: Flows,
        host: Host,
        parts: Parts,
        guests: Guests,
        links: FlowLinks | None,
        status: Status,
        clock: Clock,
    ) -> None:
        """`links`: None where links to other gateways are off."""
        self._gateway, self._pool, self._flows, self._host = gateway, pool, flows, host
        self._parts, self._guests, self._links, self._status, self._clock = parts, guests, links, status, clock
        self.patience_s = COMMAND_S

    def of_control_plane(self) -> dict[str, Command]:
        """Commands by verb, for clients that may write to the gateway's topics, and for programs of this board."""
        return {"status": self.status, "checkpoint": self.checkpoint, "place": self.place, "weigh": self.weigh,
                "compare": self.check_part}  # fmt: skip

    def of_agent(self) -> dict[str, Command]:
        """Commands by verb, for programs of this board only."""
        return {
            "peers": self.peers, "part.check": self.check_part, "part.status": self.part_status,
            "part.deploy": self.deploy_part, "part.remove": self.remove_part, "part.stop": self.stop_part,
            "part.export": self.export_part, "part.prepare": self.prepare_part, "part.commit": self.commit_part,
            "part.abort": self.abort_part, "part.rules": self.put_rules, "part.fence": self.fence_part,
            "part.suspend": self.suspend_part, "part.resume": self.resume_part,
            "part.guests": self.let_guests_run, "part.copy": self.copy_part, "part.ahead": self.ahead_of_part,
            "figures": self.figures, "flows": self.list_flows,
        }  # fmt: skip

    async def status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """The status object."""
        if self._links is not None:
            await self._links.look()
        return self._status.object()

    async def figures(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """Raw figures, see `figures`."""
        await self._host.figures.ask()
        return figures.figures(self._gateway, self._flows.flow_registry, self._host, self._clock)

    async def list_flows(self, _: Mapping[str, Any]) -> Any:
        """Each flow in a line."""
        await self._host.figures.ask()
        conditions = {flow["name"]: flow["condition"] for flow in self._status.object()["flows"]}
        return figures.flows(self._flows.flow_registry, self._host, conditions)

    async def checkpoint(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """A checkpoint of all flows, now. `not_committed`: the flows that came to none, by name."""
        checkpointer = self._flows.checkpointer
        try:
            async with asyncio.timeout(self.patience_s), self._flows.flow_registry.busy:
                pass
        except TimeoutError:
            raise EdgertError("a change of a flow waits, for a full disk perhaps, see the log; try again") from None
        done = await checkpointer.checkpoint(self._flows.runs.values())
        left = sorted(name for name, run in self._flows.runs.items() if not done or checkpointer.is_without(run))
        return {"committed": done and not left, "not_committed": left, **dataclasses.asdict(checkpointer.status)}

    async def place(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "moves": {operator: slot}}`: runs operators in other slots. `{"flow": name, "by": "even"}`:
        runs all of them where that scheduler says."""
        flow, by, plans = _text(arguments, "flow"), arguments.get("by"), self._flows.plans
        if not self._pool.slots:
            raise EdgertError("this gateway has no slots between which operators could move: set pool.slots")
        if (by is None) == ("moves" not in arguments):
            raise EdgertError("expected either moves: {operator: slot} or by: a scheduler")
        if by is None:
            plan = await plans.place(flow, self._moves(arguments))
        else:
            plan = await plans.place_by(flow, str(by), lambda: self._emptiest_first(flow))
        at = {operator: location.slot for operator, location in plan.assignment().items()}
        return {"flow": flow, "version": self._flows.flow_registry.stored[flow].version, "plan": plan.number,
                "assignment": at}  # fmt: skip

    def _moves(self, arguments: Mapping[str, Any]) -> dict[str, Location]:
        moves, last = arguments.get("moves"), self._pool.slots - 1
        if not isinstance(moves, Mapping) or not moves:
            raise EdgertError(f"expected moves: {{operator: slot}}, got {show(moves)}")
        for operator, slot in moves.items():
            if type(slot) is not int or not 0 <= slot <= last:
                raise EdgertError(f"expected a slot from 0 to {last} for {operator}, got {show(slot)}")
        return {str(operator): Location(self._gateway, slot) for operator, slot in moves.items()}

    def _emptiest_first(self, flow: str) -> list[int]:
        """The slots, by how many instances of other flows each has."""
        others = [run for run in self._flows.runs.values() if run.flow.name != flow]
        taken = Counter(slot for run in others for slot in self._host.figures.where(run))
        return sorted(range(self._pool.slots), key=lambda slot: (taken[slot], slot))

    async def weigh(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "weights": {operator: weight}}`: gives operators more, or less, of the pool's time."""
        flow, weights = _text(arguments, "flow"), arguments.get("weights")
        if not isinstance(weights, Mapping) or not weights:
            raise EdgertError(f"expected weights: {{operator: weight}}, got {show(weights)}")
        self._host.weigh(flow, weights)
        run = self._flows.runs.get(flow)
        return {"flow": flow, "weights": self._host.weights.of(run) if run else {}}

    # -- flows that run on several gateways

    async def peers(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"peers": {gateway: [host, port]}, "keep": [gateway, ...]}`: where the other gateways of the fleet listen,
        and those of before that stay peers though no address of theirs is known now."""
        links = self._links
        if links is None:
            raise EdgertError("links to other gateways are off: set links.enabled")
        peers = arguments.get("peers")
        if not isinstance(peers, Mapping) or not all(map(_is_address, peers.values())):
            raise EdgertError(f"expected peers: {{gateway: [host, port]}}, got {show(peers)}")
        keep = arguments.get("keep", [])
        if not isinstance(keep, list) or not all(isinstance(gateway, str) for gateway in keep):
            raise EdgertError(f"expected keep: [gateway, ...], got {show(keep)}")
        links.peers.set_peers({str(gateway): (host, port) for gateway, (host, port) in peers.items()}, keep)
        return {"peers": sorted(peers)}

    async def check_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"document": ...}`: the operator copies of a flow in topological order, each with its type, its inputs and
        whether it is a source; and the fate of the running version's state if this document replaced it."""
        document = arguments.get("document")
        if not isinstance(document, Mapping):
            raise EdgertError(f"expected a document, got {show(document)}")
        registry = self._flows.registry
        flow = await self._flows.checked(dict(document))
        run = self._flows.runs.get(flow.name)
        fission = run.fission if run and run.flow.document == flow.document else self._pool.fission
        copies = {name: operator_copies(node, fission) for name, node in flow.nodes.items()}
        return {
            "state": msgspec.to_builtins(compared(flow, self._flows.runs, registry)),
            "operators": {
                copy: {
                    "source": registry[node.type].role == "source",
                    "type": node.type,
                    "inputs": [other for i in node.inputs for other in copies[i]],
                }
                for name, node in flow.nodes.items()
                for copy in copies[name]
            },
        }

    async def deploy_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"document": ..., "assignment": {operator: [gateway, slot]}, "plan": number}`: this gateway's part of a
        flow that runs on several. It runs what the assignment gives it, and sends batches to the others."""
        document, number = arguments.get("document"), arguments.get("plan", 0)
        if not isinstance(document, Mapping) or type(number) is not int:
            raise EdgertError(f"expected a document and the number of a plan, got {show(document)}, {show(number)}")
        flows = self._flows
        flow = await flows.checked(dict(document))
        assignment = assignment_untrusted(arguments.get("assignment"))
        if self._links is None and any(at.gateway != self._gateway for at in assignment.values()):
            raise EdgertError("links to other gateways are off: set links.enabled")
        async with self._obeying(flow.name, arguments):
            await self._rules(flow.name, arguments)
            version = await flows.deploy(flow, FLEET, assignment, number)
        state = msgspec.to_builtins(flows.kept_state.get(flow.name, NOTHING_REPLACED))
        return {"flow": flow.name, "version": version, "plan": number, "state": state}

    async def remove_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name}`: ends this gateway's part of a flow; what its operators hold goes to the other gateways."""
        flow = _text(arguments, "flow")
        async with self._obeying(flow, arguments):
            await self._parts.resume(flow)  # what a suspended part holds is shipped, as that of any other
            return {"flow": flow, "removed": await self._flows.remove(flow)}

    async def part_status(self, _: Mapping[str, Any]) -> Mapping[str, Any]:
        """This gateway's parts of flows, by flow: plan, assignment, state, fencing number."""
        return self._parts.status()

    async def fence_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "fence": number}`: obeys that coordinator, unless it obeys a later one; says which."""
        flow = _text(arguments, "flow")
        return {"fence": await self._parts.obey(flow, _number(arguments, "fence"))}

    async def stop_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `gateway.flows.parts`; so are the next ones. `{"flow": name, "fence": number}`."""
        flow = _text(arguments, "flow")
        async with self._obeying(flow, arguments):
            return await self._parts.stop(flow, _number(arguments, "fence"))

    async def export_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "operators": [copy, ...], "taken": {gateway: [epoch, sequence]}, "since": token}`."""
        operators, taken, since = _operators(arguments), arguments.get("taken", {}), arguments.get("since", "")
        if not isinstance(since, str):
            raise EdgertError(f"expected the token of a copy as since, got {show(since)}")
        if not isinstance(taken, Mapping) or not all(map(_is_number, taken.values())):
            raise EdgertError(f"expected taken: {{gateway: [epoch, sequence]}}, got {show(taken)}")
        return await self._parts.export(_text(arguments, "flow"), operators, taken, since)

    async def copy_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `gateway.flows.precopy`. `{"flow": name, "operators": [copy, ...], "most": bytes, "fence": number}`."""
        flow, operators, most = _text(arguments, "flow"), _operators(arguments), _number(arguments, "most", 1 << 62)
        async with self._obeying(flow, arguments):
            return await self._parts.copy(flow, operators, most)

    async def ahead_of_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"document", "assignment", "plan", "copies": {gateway: what it said to `part.copy`}, "fence"}`."""
        document, copies = arguments.get("document"), arguments.get("copies")
        if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
            raise EdgertError(f"expected a document with a name, got {show(document)}")
        if not isinstance(copies, Mapping) or not all(map(_is_copy, copies.values())):
            raise EdgertError(f"expected copies: {{gateway: what it said}}, got {show(copies)}")
        assignment, plan = assignment_untrusted(arguments.get("assignment")), _number(arguments, "plan")
        async with self._obeying(document["name"], arguments):
            await self._parts.ahead(document, assignment, plan, copies)
        return {"plan": plan}

    async def prepare_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"document", "assignment", "plan", "imports": [what every gateway exported, ...]}`."""
        document, imports = arguments.get("document"), arguments.get("imports", [])
        if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
            raise EdgertError(f"expected a document with a name, got {show(document)}")
        if not isinstance(imports, list) or not all(map(_is_export, imports)):
            raise EdgertError(f"expected imports, each as a gateway exported it, got {show(imports)}")
        assignment, plan = assignment_untrusted(arguments.get("assignment")), _number(arguments, "plan")
        async with self._obeying(document["name"], arguments):
            await self._rules(document["name"], arguments)
            await self._parts.prepare(document, assignment, plan, imports)
        return {"plan": plan}

    async def commit_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "plan": number, "fence": number}`."""
        flow = _text(arguments, "flow")
        async with self._obeying(flow, arguments):
            return await self._parts.commit(flow, _number(arguments, "plan"))

    async def abort_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "plan": number, "fence": number}`."""
        flow = _text(arguments, "flow")
        async with self._obeying(flow, arguments):
            await self._parts.abort(flow, _number(arguments, "plan"))
        return {"flow": flow}

    async def suspend_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name}`: the part stands still until `part.resume`. Of this board's agent, not of a coordinator."""
        return {"suspended": await self._parts.suspend(_text(arguments, "flow"))}

    async def resume_part(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name}`."""
        await self._parts.resume(_text(arguments, "flow"))
        return {}

    async def let_guests_run(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"for_s": seconds}`: parts without a source here may run for so long, unless this board's agent says it
        again. From now on they also wait for the agent after a start."""
        for_s = arguments.get("for_s")
        if not isinstance(for_s, int | float) or not for_s >= 0:
            raise EdgertError(f"expected seconds as for_s, got {show(for_s)}")
        await self._guests.let_run(for_s)
        return {}

    async def put_rules(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """`{"flow": name, "rules": {...}, "fence": number}`: keeps the rules of the flow's placement for the agents."""
        flow = _text(arguments, "flow")
        async with self._obeying(flow, arguments):
            await self._rules(flow, arguments)
        return {"flow": flow}

    async def _rules(self, flow: str, arguments: Mapping[str, Any]) -> None:
        rules = arguments.get("rules")
        if isinstance(rules, Mapping):
            await self._parts.put_rules(flow, _number(arguments, "fence", 0), rules)
        elif rules is not None:
            raise EdgertError(f"expected rules as a map, got {show(rules)}")

    def _obeying(self, flow: str, arguments: Mapping[str, Any]) -> AbstractAsyncContextManager[None]:
        return self._parts.obeying(flow, _number(arguments, "fence", 0))


def assignment_untrusted(plain: Any) -> dict[str, Location]:
    """The assignment in `{operator: [gateway, slot]}`. Raises `EdgertError`."""
    if not isinstance(plain, Mapping) or not all(map(_is_address, plain.values())):
        raise EdgertError(f"expected an assignment {{operator: [gateway, slot]}}, got {show(plain)}")
    return {str(operator): Location(gateway, slot) for operator, (gateway, slot) in plain.items()}


def _is_address(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str) and type(value[1]) is int


def _is_number(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(type(part) is int for part in value)


def _is_export(value: Any) -> bool:
    if not isinstance(value, Mapping) or not all(isinstance(value.get(name), bytes) for name in ("queue", "pending")):
        return False
    texts = all(isinstance(value.get(name, ""), str) for name in ("gateway", "since"))
    return texts and _are_states(value.get("states")) and ("gateway" in value or not value.get("since"))


def _is_copy(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("token"), str) and _are_states(value.get("states"))


def _are_states(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(state, bytes) for state in value)


def _operators(arguments: Mapping[str, Any]) -> list[str]:
    operators = arguments.get("operators")
    if not isinstance(operators, list) or not all(isinstance(one, str) for one in operators):
        raise EdgertError(f"expected operators: [name, ...], got {show(operators)}")
    return operators


def _number(arguments: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = arguments.get(name, default)
    if type(value) is not int or value < 0:
        raise EdgertError(f"expected a number as {name}, got {show(value)}")
    return value


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value:
        raise EdgertError(f"expected a text as {name}, got {show(value)}")
    return value
