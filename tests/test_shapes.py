"""Limits on what makes a class hard to hold in the head: its fields, its methods with inherited ones, and the
constructor's arguments without names. Lines are not limited: a file has one concern."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("edgert", "gateway", "agent", "provisioning", "images")
ABOVE = Path(__file__).with_name("shapes_above_the_limits.json")
"""Class → [fields, methods, arguments] of the classes above a limit. The numbers may only fall, and a class that keeps
all limits leaves the list."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a class."""

    fields: int
    methods: int
    """With inherited ones, properties too; without those of Python (`__init__`)."""
    arguments: int
    """Of the constructor, that may be passed without a name."""

    def exceeds(self, other: Shape) -> bool:
        return any(ours > theirs for ours, theirs in zip(astuple(self), astuple(other), strict=True))


LIMITS = Shape(15, 20, 6)


@cache
def classes() -> dict[str, tuple[Path, ast.ClassDef]]:
    """All classes of the product by `file:name`."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[f"{path.relative_to(ROOT)}:{node.name}"] = path, node
    return found


def _bases(node: ast.ClassDef, named: dict[str, list[ast.ClassDef]], seen: set[str]) -> Iterator[ast.ClassDef]:
    yield node
    for base in node.bases:
        name = ast.unparse(base).split("[")[0].rpartition(".")[2]
        if name not in seen and len(named.get(name, ())) == 1:
            seen.add(name)
            yield from _bases(named[name][0], named, seen)


def _functions(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]


def _is_structure(node: ast.ClassDef) -> bool:
    texts = [ast.unparse(one) for one in (*node.decorator_list, *node.bases)]
    return any("dataclass" in text or "Struct" in text or "NamedTuple" in text for text in texts)


def shape(node: ast.ClassDef, named: dict[str, list[ast.ClassDef]]) -> Shape:
    """The shape of a class. `named`: the product's classes by name, for the inherited methods."""
    family = list(_bases(node, named, {node.name}))
    methods = {m.name for one in family for m in _functions(one) if not m.name.startswith("__")}
    fields: set[str] = set()
    arguments = 0
    for one in family:
        fields |= {
            part.target.id
            for part in one.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and _is_structure(one)
        }
        for part in ast.walk(one):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                fields |= {part.attr} if isinstance(part.value, ast.Name) and part.value.id == "self" else set()
    for one in reversed(family):
        for method in _functions(one):
            if method.name == "__init__":
                arguments = len(method.args.posonlyargs) + len(method.args.args) - 1
    return Shape(len(fields), len(methods), arguments)


@cache
def above() -> dict[str, Shape]:
    """The classes above a limit now."""
    named: dict[str, list[ast.ClassDef]] = {}
    for _, node in classes().values():
        named.setdefault(node.name, []).append(node)
    shapes = {name: shape(node, named) for name, (path, node) in classes().items() if "settings" not in path.parts}
    return {name: found for name, found in shapes.items() if found.exceeds(LIMITS)}


def allowed() -> dict[str, Shape]:
    return {name: Shape(*numbers) for name, numbers in json.loads(ABOVE.read_text()).items()}


def test_classes_above_the_limits_only_shrink() -> None:
    assert len(classes()) > 800
    grown = {
        name: f"{found}, {allowed().get(name, LIMITS)} at most"
        for name, found in above().items()
        if found.exceeds(allowed().get(name, LIMITS))
    }
    assert grown == {}, "separate by concern; see docs/internals/rooms.md"


def test_the_list_has_no_class_that_keeps_the_limits() -> None:
    assert {*allowed()} - {*above()} == set()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    def __init__(self, a, b, *, c):\n        self.a = a\n        self.b: int = b", Shape(2, 0, 2)),
        ("    def one(self): ...\n    @property\n    def two(self): ...", Shape(0, 2, 0)),
    ],
)
def test_the_shape_of_a_class(body: str, expected: Shape) -> None:
    node = ast.parse(f"class C:\n{body}").body[0]
    assert isinstance(node, ast.ClassDef)
    assert shape(node, {}) == expected


def test_inherited_methods_count() -> None:
    base, node = ast.parse("class B:\n    def f(self): ...\nclass C(B):\n    def g(self): ...").body
    assert isinstance(base, ast.ClassDef)
    assert isinstance(node, ast.ClassDef)
    assert shape(node, {"B": [base]}) == Shape(0, 2, 0)
