"""Typed expressions: text to tree to one compiled Python function."""

from edgert.expr.build import Term, call, field
from edgert.expr.compile import Bad, CompiledChain, Filter, Map, Select, Step, compile_chain, compile_expression
from edgert.expr.functions import functions_markdown
from edgert.expr.parse import parse
from edgert.expr.text import to_text
from edgert.expr.tree import Expression, fields

__all__ = [
    "Bad",
    "CompiledChain",
    "Expression",
    "Filter",
    "Map",
    "Select",
    "Step",
    "Term",
    "call",
    "compile_chain",
    "compile_expression",
    "field",
    "fields",
    "functions_markdown",
    "parse",
    "to_text",
]
