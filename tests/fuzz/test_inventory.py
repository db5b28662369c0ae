"""Every function of the product that takes what comes from outside has a fuzz test: by its own name, or by that of a
function through which alone it is reached."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("edgert", "gateway", "agent", "provisioning", "images")
ALIASES: Final = {"parse_untrusted": "threads_untrusted", "unpack_untrusted": "terms_untrusted"}
"""Names under which tests import functions that several modules have."""
FUZZ: Final = re.compile(r"@given|\brandom\.Random|\bRandom\(")
"""A test that tries many inputs has one of these."""

P, B, U = "tests/fuzz/test_plain_answers.py", "tests/fuzz/test_bytes.py", "tests/fuzz/test_boards.py"
S = "tests/fuzz/test_signing.py"
FUZZED: Final = {
    "edgert/flow/document.py:read_untrusted": "tests/flow/test_document.py",
    "images/layout.py:slots_untrusted": "tests/images/test_layout.py",
    "edgert/runtime/checkpoint/departures.py:unpack_untrusted": "tests/runtime/checkpoint/test_departures.py",
    "edgert/mqtt/packets/properties.py:read_varint_untrusted": B,
    "edgert/mqtt/packets/properties.py:read_binary_untrusted": B,
    "edgert/mqtt/packets/properties.py:read_text_untrusted": B,
    "edgert/mqtt/packets/properties.py:text_untrusted": B,
    "edgert/mqtt/packets/properties.py:read_properties_untrusted": B,
    "edgert/mqtt/packets/decode.py:feed_untrusted": "tests/mqtt/test_decode.py",
    "edgert/mqtt/session/session.py:receive_untrusted": "tests/mqtt/test_outgoing.py",
    "edgert/mqtt/clients/deployment.py:read_answer_untrusted": "tests/mqtt/test_deployment.py",
    "edgert/mqtt/clients/deployment.py:retained_untrusted": "tests/mqtt/test_deployment.py",
    "edgert/mqtt/clients/deployment.py:message_untrusted": "tests/mqtt/test_deployment.py",
    "edgert/central/collector/macs.py:payload_untrusted": B,
    "edgert/central/collector/messages.py:has_untrusted": B,
    "edgert/operators/models/predict.py:checked_untrusted": "tests/operators/fusion/test_code_tree.py",
    "edgert/operators/models/models.py:model_untrusted": P,
    "edgert/codecs/senml.py:decode_untrusted": B,
    "edgert/codecs/senml.py:decode_batch_untrusted": B,
    "edgert/codecs/json.py:decode_untrusted": B,
    "edgert/codecs/json.py:decode_batch_untrusted": B,
    "edgert/codecs/value.py:decode_untrusted": B,
    "edgert/codecs/value.py:decode_batch_untrusted": B,
    "edgert/codecs/base.py:parse_untrusted": B,
    "edgert/codecs/base.py:text_untrusted": B,
    "edgert/codecs/base.py:repeated_keys_untrusted": B,
    "edgert/control/messages.py:feed_untrusted": "tests/control/test_messages.py",
    "edgert/control/messages.py:request_untrusted": "tests/control/test_messages.py",
    "edgert/control/board_figures.py:figures_untrusted": "tests/control/test_board_figures.py",
    "edgert/operators/sources/units.py:units_untrusted": "tests/operators/sources/test_units.py",
    "edgert/control/messages.py:answer_untrusted": "tests/control/test_messages.py",
    "edgert/boards/slots.py:pending_untrusted": "tests/boards/test_slots.py",
    "edgert/boards/revocation.py:read_list_untrusted": B,
    "edgert/boards/revocation.py:revoked_names_untrusted": B,
    "edgert/boards/table.py:common_untrusted": "tests/boards/test_table.py",
    "edgert/boards/table.py:boards_untrusted": "tests/boards/test_table.py",
    "edgert/store/file/commit_mark.py:unpacked_untrusted": "tests/store/test_commit_mark.py",
    "edgert/demo/trace.py:parse_line_untrusted": B,
    "edgert/links/messages.py:feed_untrusted": "tests/links/test_messages.py",
    "edgert/links/tls.py:certificate_identity_untrusted": P,
    "edgert/core/compression.py:expanded_untrusted": "tests/core/test_compression.py",
    "edgert/core/packing.py:unpack_untrusted": B,
    "edgert/core/text_files.py:text_untrusted": "tests/core/test_text_files.py",
    "edgert/core/results/macs.py:split_untrusted": "tests/core/test_macs.py",
    "edgert/core/results/results.py:unpack_result_untrusted": "tests/central/collector/test_reassembly.py",
    "edgert/core/results/results.py:unpack_acknowledgement_untrusted": "tests/core/test_results.py",
    "edgert/core/results/pieces.py:piece_untrusted": P,
    "edgert/core/results/result_schema.py:schema_untrusted": P,
    "gateway/web/guard.py:host_name_untrusted": B,
    "gateway/hosts/weights.py:put_untrusted": P,
    "gateway/control/central.py:message_untrusted": B,
    "gateway/control/commands.py:assignment_untrusted": P,
    "gateway/control/mqtt_api.py:handle_untrusted": B,
    "gateway/ingest/broker_drops.py:take_untrusted": B,
    "gateway/uplink/macs.py:payload_untrusted": B,
    "edgert/boards/member_identity.py:opened_untrusted": "tests/agent/network/test_certificates.py",
    "agent/membership/packets.py:open_untrusted": "tests/agent/membership/test_fuzzed_packets.py",
    "agent/membership/packets.py:open_frame_untrusted": "tests/agent/membership/test_packets.py",
    "agent/lease/grants.py:record_untrusted": P,
    "agent/lease/grants.py:grants_untrusted": P,
    "agent/lease/voters.py:voters_untrusted": P,
    "agent/membership/protocol.py:receive_untrusted": "tests/agent/membership/test_packets.py",
    "agent/membership/messages.py:decode_untrusted": "tests/agent/membership/test_packets.py",
    "agent/membership/messages.py:coordinate_untrusted": P,
    "agent/metrics.py:_answer_untrusted": B,
    "agent/drivers/flink.py:report_untrusted": P,
    "agent/drivers/procfs.py:pressure_untrusted": "tests/agent/drivers/test_procfs.py",
    "agent/drivers/edgert.py:report_untrusted": P,
    "agent/drivers/storm.py:report_untrusted": P,
    "agent/drivers/jvm.py:parse_untrusted": P,
    "agent/osched/cooperation/terms.py:unpack_untrusted": B,
    "agent/fleet/moves.py:candidate_untrusted": P,
    "agent/fleet/plans.py:profile_untrusted": P,
    "agent/fleet/status.py:section_untrusted": P,
    "agent/fleet/status.py:labels_untrusted": P,
    "agent/fleet/status.py:link_untrusted": P,
    "agent/interference/ring.py:unpack_untrusted": "tests/agent/interference/test_ring.py",
    "edgert/boards/waves.py:waves_untrusted": U,
    "edgert/boards/board_state.py:state_untrusted": U,
    "edgert/boards/requests.py:read_request_untrusted": U,
    "edgert/boards/requests.py:request_untrusted": U,
    "edgert/boards/revocation.py:is_newer_untrusted": U,
    "edgert/boards/signing_requests.py:signing_request_untrusted": S,
    "edgert/boards/authority.py:owner_untrusted": S,
    "edgert/cli/fleet/service.py:answer_untrusted": S,
    "edgert/boards/signing_requests.py:enrolment_untrusted": S,
    "provisioning/enrolment.py:identity_untrusted": S,
    "provisioning/enrolment.py:pinned_untrusted": S,
    "provisioning/renewal.py:ask_untrusted": S,
    "provisioning/renewal.py:checked_untrusted": S,
    "edgert/cli/board/requests.py:take_untrusted": U,
    "edgert/cli/board/requests.py:left_untrusted": U,
    "edgert/cli/fleet/board_watch.py:message_untrusted": U,
    "edgert/cli/fleet/board_watch.py:_take_untrusted": U,
    "edgert/cli/fleet/revoked.py:message_untrusted": U,
    "gateway/control/revoked.py:take_untrusted": U,
    "provisioning/on_board.py:take_untrusted": B,
    "agent/core_speed.py:speed_untrusted": "tests/fuzz/test_reports.py",
    "edgert/mqtt/clients/deployment.py:comparison_untrusted": "tests/fuzz/test_reports.py",
    "edgert/flow/versions/kept_state.py:kept_state_untrusted": "tests/fuzz/test_reports.py",
    "provisioning/document.py:files_untrusted": "tests/provisioning/test_document.py",
}
"""Function -> the test that tries many inputs on it."""
THROUGH: Final = {
    "edgert/runtime/checkpoint/departures.py:_departure_untrusted": "unpack_untrusted",
    "edgert/runtime/checkpoint/departures.py:_rows_untrusted": "_departure_untrusted",
    "edgert/mqtt/clients/deployment.py:_note_untrusted": "message_untrusted",
    "edgert/mqtt/clients/transport.py:received_untrusted": "receive_untrusted",
    "edgert/central/collector/main.py:_received_untrusted": "payload_untrusted",
    "edgert/central/collector/collector.py:_take_untrusted": "read_untrusted",
    "edgert/central/collector/messages.py:read_untrusted": "unpack_result_untrusted",
    "edgert/codecs/json.py:_repeated_untrusted": "repeated_keys_untrusted",
    "edgert/control/messages.py:_map_untrusted": "unpack_untrusted",
    "edgert/control/server.py:_request_untrusted": "request_untrusted",
    "edgert/links/messages.py:decode_untrusted": "feed_untrusted",
    "edgert/links/session.py:receive_untrusted": "feed_untrusted",
    "edgert/core/results/maps.py:map_untrusted": "unpack_untrusted",
    "edgert/core/results/maps.py:result_map_untrusted": "map_untrusted",
    "edgert/operators/sources/unseen_fields.py:_sample_untrusted": "parse_untrusted",
    "gateway/flows/models.py:offer_untrusted": "_checked_untrusted",
    "gateway/flows/models.py:_checked_untrusted": "_sorted_untrusted",
    "gateway/flows/models.py:_sorted_untrusted": "checked_untrusted",
    "gateway/control/central.py:_retained_untrusted": "message_untrusted",
    "gateway/control/mqtt_api.py:_checked_untrusted": "read_untrusted",
    "gateway/uplink/uplink.py:acknowledged_untrusted": "unpack_acknowledgement_untrusted",
    "gateway/links/flow_links.py:_arrivals_untrusted": "unpack_untrusted",
    "gateway/links/peer.py:_received_untrusted": "receive_untrusted",
    "agent/membership/protocol.py:answer_table_untrusted": "read_untrusted",
    "agent/membership/protocol.py:merge_untrusted": "read_untrusted",
    "agent/network/frames.py:map_untrusted": "unpack_untrusted",
    "agent/network/frames.py:token_and_verb_untrusted": "unpack_untrusted",
    "agent/membership/tables.py:read_untrusted": "decode_untrusted",
    "agent/fleet/status.py:flows_untrusted": "section_untrusted",
    "provisioning/on_board.py:_made_untrusted": "files_untrusted",
    "agent/membership/keys.py:open_untrusted": "",
    "agent/membership/own_claims.py:told_untrusted": "decode_untrusted",
    "agent/metrics.py:_serve_untrusted": "_answer_untrusted",
    "agent/osched/cooperation/exchange.py:_read_untrusted": "unpack_untrusted",
}
"""Function that does little itself -> the one with a fuzz test that it calls, or that calls it. An empty name: it hands
all to a library."""


def untrusted() -> Iterator[tuple[str, str]]:
    """(file and name, source) of each such function that has a body."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.endswith("_untrusted"):
                    last = node.body[-1]
                    if not (isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant)):
                        yield f"{path.relative_to(ROOT)}:{node.name}", ast.get_source_segment(text, node) or ""


SOURCES: Final = dict(untrusted())


def test_each_function_that_takes_what_comes_from_outside_has_a_fuzz_test() -> None:
    assert set(SOURCES) == set(FUZZED) | set(THROUGH), "a new one needs a line above, and a test"
    assert not set(FUZZED) & set(THROUGH)


@pytest.mark.parametrize("function", FUZZED)
def test_the_test_of_a_function_tries_many_inputs_on_it(function: str) -> None:
    name, text = function.partition(":")[2], (ROOT / FUZZED[function]).read_text()
    assert FUZZ.search(text)
    called = {name, ALIASES.get(name, name)}
    if name.startswith(("decode_", "decode_batch_")) or name == "checked_untrusted":
        called.add("make(")
    assert any(one in text for one in called), f"{FUZZED[function]} does not call {name}"


@pytest.mark.parametrize("function", [f for f in THROUGH if THROUGH[f]])
def test_a_function_without_a_test_of_its_own_is_reached_by_another_one(function: str) -> None:
    path, _, name = function.partition(":")
    other = THROUGH[function]
    calls = re.search(rf"\b{other}\b", SOURCES[function])
    assert calls or re.search(rf"\b{name}\b", SOURCES.get(f"{path}:{other}", ""))
