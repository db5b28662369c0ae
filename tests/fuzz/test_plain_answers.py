"""Functions that take plain values from other programs, boards and people: nonsense raises what they document."""

from __future__ import annotations

import string
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from agent.drivers import edgert, flink, storm
from agent.drivers.base import DriverError
from agent.drivers.jvm import parse_untrusted as threads_untrusted
from agent.drivers.recent_sums import RecentSums
from agent.fleet import plans
from agent.fleet.moves import SECTION, candidate_untrusted
from agent.fleet.rings import SECTION as RING
from agent.fleet.status import labels_untrusted, link_untrusted, section_untrusted
from agent.interference import ring as rings
from agent.lease.grants import grants_untrusted, record_untrusted
from agent.lease.voters import voters_untrusted
from agent.membership.members import Member, Section, State, Version
from agent.membership.messages import coordinate_untrusted
from edgert.core.errors import DocumentError, EdgertError, PayloadError, ProtocolError
from edgert.core.packing import pack
from edgert.core.results.pieces import piece_untrusted
from edgert.core.results.result_schema import schema_untrusted
from edgert.flow.plan import Location
from edgert.links.tls import certificate_identity_untrusted
from edgert.operators.models.models import model_untrusted
from gateway.control.commands import assignment_untrusted
from gateway.hosts.weights import Weights
from tests.agent.drivers.storm_answers import PATH, STORM
from tests.agent.drivers.worlds import FLINK, JOB, SOURCE, SUM, THREADS, figures
from tests.fuzz.nearly import as_bytes, nearly

BOARD = {
    "cores": 4, "speed": 1000, "memory_mib": 900, "bandwidth_mbit": 100.0, "link": ["10.0.0.1", 7000],
    "drained": False,
    "labels": {"site": "north", "gpu": "no"},
}  # fmt: skip
MOVES = {"drained": False, "takes": True, "room": [3, 4], "high": [0.5, 2]}
USE = rings.pack(rings.Ring((0.5,) * rings.WINDOWS, (1e3,) * rings.WINDOWS))
OTHER_FORM = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
LOCATIONS = {"in": ["g1", 0], "window": ["g2", -1]}


def member(**sections: bytes) -> Member:
    found = Member("g2", ("10.0.0.1", 7000), Version(1, 0, State.ALIVE), 0.0)
    found.sections = {name: Section(1, 1, payload) for name, payload in sections.items()}
    return found


@given(nearly(figures()))
@example({**figures(), "threads": [{"pid": 1, "tid": 2, "slot": float("inf")}]})
def test_figures_of_a_gateway(told: Any) -> None:
    with suppress(DriverError):
        edgert.report_untrusted(told, RecentSums(), lambda pid: True)


@given(nearly([FLINK[f"/jobs/{JOB}"]]), nearly([FLINK[SUM], FLINK[SOURCE]]))
@example([{**FLINK[f"/jobs/{JOB}"], "vertices": [{"id": SUM, "name": "x", "parallelism": 2**63}]}], [])
def test_answers_of_flink(details: Any, metrics: Any) -> None:
    with suppress(*OTHER_FORM):
        found = dict(zip([(JOB, SUM), (JOB, SOURCE)], metrics, strict=False))
        flink.report_untrusted(details, found, lambda wanted: ({}, []), RecentSums(), 1.0)


@given(nearly(STORM[PATH]), nearly(STORM[f"{PATH}/component/rows"]), nearly(STORM[f"{PATH}/visualization"]))
def test_answers_of_storm(page: Any, component: Any, graph: Any) -> None:
    with suppress(*OTHER_FORM):
        executors = storm.executor_ids(component)
        of = dict.fromkeys(("rows", "light", "heavy"), executors)
        streams = {name: storm.transferred(component) for name in of}
        topology = storm.Topology(page, storm.edges(graph), of, storm.components(page), streams)
        storm.report_untrusted([topology], lambda wanted: ({}, []), RecentSums(), 1.0)


@given(st.one_of(st.text(alphabet=string.printable), st.integers(0, len(THREADS)).map(lambda n: THREADS[n:])))
@example('"x" #1 nid=0xzz\n"y" nid=99999999999999999999999 runnable')
def test_thread_lists_of_a_java_process(text: str) -> None:
    for name, number in threads_untrusted(text):
        assert (type(name), type(number)) == (str, int)


@given(as_bytes(BOARD))
@example(pack({**BOARD, "memory_mib": float("inf")}))
@example(pack({**BOARD, "cores": float("nan")}))
def test_sections_of_a_member(payload: bytes) -> None:
    of = member(board=payload)
    assert isinstance(section_untrusted(of, "board"), Mapping)
    assert all(isinstance(label, str) for label in labels_untrusted(of))
    link = link_untrusted(of)
    assert link is None or (isinstance(link[0], str) and link[1] > 0)
    profile = plans.profile_untrusted(of)
    assert profile is None or (profile["cpu"] > 0 and isinstance(profile["memory"], int))


@given(as_bytes(MOVES), as_bytes(BOARD), st.one_of(st.binary(max_size=200), st.just(USE)))
def test_boards_that_take_instances(moves: bytes, board: bytes, ring: bytes) -> None:
    found = candidate_untrusted(member(**{SECTION: moves, "board": board, RING: ring}))
    assert found is None or found.gateway == "g2"


@given(nearly([0.1, 0.2, 0.3]))
def test_coordinates(value: Any) -> None:
    with suppress(ValueError):
        assert all(type(number) is float for number in coordinate_untrusted(value))


@given(nearly(LOCATIONS))
def test_assignments(value: Any) -> None:
    with suppress(EdgertError):
        assert all(isinstance(at, Location) for at in assignment_untrusted(value).values())


@given(nearly({"window": 2.0}))
def test_weights(value: Any) -> None:
    with suppress(EdgertError):
        Weights().put_untrusted("f", value if isinstance(value, dict) else {"x": value}, [])


@given(
    nearly(
        {
            "subjectAltName": [["URI", "edgert://fleet/g1"], ["DNS", "x"]],
            "subject": [[["commonName", "g1"]], [["countryName", "XX"]]],
        }
    )
)
def test_certificates_as_ssl_gives_them(value: Any) -> None:
    """What a peer may put into the names; the form is that of the standard library."""
    texts = [str(value), *(value if isinstance(value, dict) else ())]
    for text in texts:
        for certificate in (
            {"subjectAltName": (("URI", f"edgert://{text}"), ("URI", text))},
            {"subject": ((("commonName", text),),)},
            None,
        ):  # fmt: skip
            with suppress(ProtocolError):
                certificate_identity_untrusted(certificate, "fleet")


@given(nearly({"of": [1 << 32, 0, 7], "at": 0, "pieces": 3, "data": b"x"}))
def test_pieces_of_results(value: Any) -> None:
    with suppress(PayloadError):
        piece_untrusted(value if isinstance(value, dict) else {"of": value}, "g1", "f")


@given(nearly({"window_s": 60.0, "keys": [["source", "string"]], "aggregates": [["n", "count"], ["t", "mean"]]}))
def test_schemas_of_results(value: Any) -> None:
    with suppress(PayloadError):
        schema_untrusted(value)


@given(nearly({"kind": "linear_regression", "intercept": 1.5, "coefficients": {"t": 2.0, "h": -0.5}}))
def test_models(value: Any) -> None:
    with suppress(DocumentError, EdgertError):
        model_untrusted(value if isinstance(value, dict) else {"kind": value}, None)


def test_the_examples_are_taken_as_they_are() -> None:
    """Else the tests above would look at refusals only."""
    assert edgert.report_untrusted(figures(), RecentSums(), lambda pid: True).operators
    assert flink.report_untrusted([FLINK[f"/jobs/{JOB}"]], {}, lambda wanted: ({}, []), RecentSums(), 1.0).operators
    assert labels_untrusted(member(board=pack(BOARD))) == {"site=north", "gpu=no"}
    assert plans.profile_untrusted(member(board=pack(BOARD)))
    assert assignment_untrusted(LOCATIONS)
    assert list(threads_untrusted(THREADS))
    assert storm.executor_ids(STORM[f"{PATH}/component/rows"])
    assert candidate_untrusted(member(**{SECTION: pack(MOVES), "board": pack(BOARD), RING: USE}))


RECORD = [7, "runs", ["g1", "g2"]]


@given(nearly(RECORD), nearly({"city-air": [3, "g1", RECORD]}))
def test_what_other_boards_and_the_disk_tell_of_leases(record: Any, grants: Any) -> None:
    with suppress(ValueError):
        assert record_untrusted(record).number >= 0
    with suppress(ValueError):
        assert all(isinstance(flow, str) for flow in grants_untrusted(grants))


@given(nearly(["g1 5f", 3, 1, ["g1", "g2"]]))
def test_what_other_boards_tell_of_the_fleets_voters(told: Any) -> None:
    with suppress(ValueError):
        voters = voters_untrusted(told)
        assert voters.number >= 0
        assert all(voters.names)
