"""The order of graphs with cycles: algorithm 3 of FGCS 2025."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.placement.problem.cyclic_order import components, order


def test_sources_and_sinks_are_taken_all_at_once() -> None:
    assert order(range(5), [(0, 2), (1, 2), (2, 3), (2, 4)]) == [[0, 1], [2], [3, 4]]


def test_a_cycle_breaks_where_rows_enter_it() -> None:
    """0 → 1 → 2 → 3 → 4 with an edge 3 → 1 back: the edge back is the one that counts for nothing."""
    assert order(range(5), [(0, 1), (1, 2), (2, 3), (3, 4), (3, 1)]) == [[0], [1], [2], [3], [4]]


def test_two_cycles_in_a_row_break_from_the_front() -> None:
    edges = [(0, 1), (1, 2), (2, 1), (2, 3), (3, 4), (4, 3), (4, 5)]
    assert [v for level in order(range(6), edges) for v in level] == [0, 1, 2, 3, 4, 5]


def test_components_come_with_the_last_in_the_graph_first() -> None:
    assert components([0, 1, 2, 3], {0: {1}, 1: {0, 2}, 2: {3}, 3: {2}}) == [[2, 3], [0, 1]]


graphs = st.integers(1, 12).flatmap(
    lambda n: st.tuples(st.just(n), st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=30))
)


@given(graph=graphs)
def test_every_vertex_comes_once_and_without_cycles_all_edges_lead_forward(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    vertices, edges = graph
    levels = order(range(vertices), edges)
    assert sorted(v for level in levels for v in level) == list(range(vertices))
    forward = [(min(e), max(e)) for e in edges if e[0] != e[1]]
    at = {v: n for n, level in enumerate(order(range(vertices), forward)) for v in level}
    assert all(at[a] < at[b] for a, b in forward)
