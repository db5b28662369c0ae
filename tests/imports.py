"""What the project's files import of each other: also within functions, and for type checkers alone."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Set
from pathlib import Path

Graph = Mapping[str, Set[str]]


def modules(root: Path, folders: tuple[str, ...]) -> dict[str, Path]:
    """By dotted name; a package's `__init__` has the package's."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in (root / folder).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(files: Mapping[str, Path]) -> dict[str, set[str]]:
    """By file those of `files` that it imports."""
    return {name: _imported(path.read_text(), files) - {name} for name, path in files.items()}


def _imported(text: str, files: Mapping[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "expected absolute imports alone"
            assert not node.level, "expected absolute imports alone"
            whole = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in files else node.module for name in whole}
    return found & files.keys()


def between_packages(files: Mapping[str, Path], graph: Graph) -> dict[str, set[str]]:
    """By package those that its files import from. A `__main__` is a package of its own, as only tests import it; in
    `tests` it belongs to its folder."""

    def package(name: str) -> str:
        stem = files[name].stem
        own = stem == "__init__" or (stem == "__main__" and not name.startswith("tests."))
        return name if own else name.rpartition(".")[0]

    found: dict[str, set[str]] = {package(name): set() for name in graph}
    for name, targets in graph.items():
        found[package(name)] |= {package(target) for target in targets} - {package(name)}
    return found


def circles(graph: Graph) -> list[set[str]]:
    """Groups of which each member reaches each other (Tarjan 1972), of two and more."""
    order: dict[str, int] = {}
    least: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        order[name] = least[name] = len(order)
        stack.append(name)
        for target in sorted(graph[name]):
            if target not in order:
                visit(target)
            if target in stack:
                least[name] = min(least[name], least[target])
        if least[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(set(stack[at:]))
            del stack[at:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return found
