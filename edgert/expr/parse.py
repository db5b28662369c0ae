"""Text to tree. The language is Python's expressions, cut down: no indexing, only registered functions. A name with
dots between its words is that of one field, as codecs name what nested objects hold.

or_     := and_ ("or" and_)*
and_    := not_ ("and" not_)*
not_    := "not" not_ | compare
compare := sum (("<"|"<="|">"|">="|"=="|"!=") sum)* | sum ["not"] "in" "[" constants "]"
sum     := term (("+"|"-") term)*
term    := unary (("*"|"/"|"%") unary)*
unary   := "-" unary | power
power   := atom ["**" unary]
atom    := number | string | true | false | null | name | `any name` | name "(" or_, ... ")" | "(" or_ ")"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from edgert.core.errors import show
from edgert.expr import tree
from edgert.expr.tree import Arithmetic, Call, Comparison, Expression, Field, InList, Literal, Not
from edgert.expr.types import TypeFault, demand_boolean, type_of

MAX_LENGTH: Final = 4096
WORDS: Final = frozenset({"and", "or", "not", "in", "true", "false", "null"})
"""Words of the language; a field of such a name is written in backticks."""
_COMPARISONS: Final = frozenset({"<", "<=", ">", ">=", "==", "!="})
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_INSTEAD: Final = {
    "=": "==", "<>": "!=", "&&": "and", "||": "or", "&": "and", "|": "or", "!": "not", "^": "**", "//": "floor(a / b)",
    "is": "== or is_null(x)", "True": "true", "False": "false", "None": "null", "AND": "and", "OR": "or",
    "NOT": "not", "IN": "in", "NULL": "null", "TRUE": "true", "FALSE": "false",
}  # fmt: skip
_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<quoted>`[^`]*`)
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<operator>\*\*|//|<=|>=|==|!=|<>|&&|\|\||[-+*/%<>=!&|^()\[\],])
    """,
    re.VERBOSE | re.ASCII | re.DOTALL,
)
NAME: Final = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
"""A name without backticks."""
_MEANT: Final = re.compile(r"[^\W\d][^\s`'\"()\[\],+*%<>=!&|^]*")
"""Text without spaces that may be meant as one name."""
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES: Final = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "r": "\r"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    column: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else show(self.text, 40)


def parse(text: str, *, condition: bool = False) -> Expression:
    """The tree of `text`; with `condition` it must be one that can be true or false.

    Raises ValueError "expected ..., got ... at column N" for text that is not an expression, is too long (4,096
    characters), too deep (32 levels), or whose types contradict each other. Takes time linear in the length.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"expected an expression of at most {MAX_LENGTH} characters, got {len(text)}")
    parser = _Parser(text)
    expression = parser.whole()
    try:
        type_of(expression)
        if condition:
            demand_boolean(expression)
    except TypeFault as fault:
        column = parser.columns.get(id(fault.node), 1)
        raise ValueError(f"{fault} at column {column}") from None
    return expression


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        found = _TOKEN.match(text, at) or None
        if found is None:
            name = NAME.match(text, at)  # letters beyond ASCII may name a field too
            if name is None:
                raise _unreadable(text, at)
            tokens.append(_Token("name", name.group(), at + 1))
            at = name.end()
            continue
        kind = found.lastgroup or ""
        if kind == "name":
            found = NAME.match(text, at) or found
        if kind != "space":
            tokens.append(_Token(kind, found.group(), at + 1))
        at = found.end()
    tokens.append(_Token("end", "", len(text) + 1))
    return tokens


def _unreadable(text: str, at: int) -> ValueError:
    names = {'"': 'a closing "', "'": "a closing '", "`": "a closing `"}
    expected = names.get(text[at], "an expression")
    got = "the end" if text[at] in names else show(text[at])
    return ValueError(f"expected {expected}, got {got} at column {at + 1}{_backticks(text, at)}")


def _backticks(text: str, at: int) -> str:
    """A hint at backticks for a fault in what may be meant as the name of a field; empty for any other."""
    meant = next((found.group() for found in _MEANT.finditer(text) if found.start() <= at < found.end()), "")
    before = text[:at].split(" ")[-2:]
    if (
        NAME.fullmatch(meant)
        and before[-1] == ""
        and NAME.fullmatch(before[0])
        and WORDS.isdisjoint((before[0], meant))
    ):
        meant = f"{before[0]} {meant}"
    told = meant and not NAME.fullmatch(meant) and len(meant) <= 60
    return f"; a field of that name is written in backticks: `{show(meant, 300)[1:-1]}`" if told else ""


class _Parser:
    """Recursive descent; `columns` remembers where each node began, by identity."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.at = 0
        self.levels = 0
        self.columns: dict[int, int] = {}
        self.kept: list[Expression] = []  # so that no identity is used twice

    @property
    def next(self) -> _Token:
        return self.tokens[self.at]

    def fault(self, expected: str, token: _Token | None = None) -> ValueError:
        token = token or self.next
        hint = _INSTEAD.get(token.text)
        expected = f"{hint}" if hint and token.kind != "string" else expected
        backticks = "" if hint else _backticks(self.text, token.column - 1)
        return ValueError(f"expected {expected}, got {token} at column {token.column}{backticks}")

    def take(self, *texts: str) -> _Token | None:
        token = self.next
        if token.kind in ("operator", "name") and token.text in texts:
            self.at += 1
            return token
        return None

    def demand(self, text: str) -> None:
        if self.take(text) is None:
            raise self.fault(text)

    def make(self, column: int, build: Callable[[], Expression]) -> Expression:
        """Build a node; a bound that it breaks is reported with its column."""
        try:
            node = build()
        except ValueError as error:
            raise ValueError(f"{error} at column {column}") from None
        self.columns[id(node)] = column
        self.kept.append(node)
        return node

    def enter(self) -> None:
        self.levels += 1
        if self.levels > tree.MAX_DEPTH:
            column = self.next.column
            raise ValueError(f"expected at most {tree.MAX_DEPTH} levels of nesting, got more at column {column}")

    def whole(self) -> Expression:
        expression = self.any_of()
        if self.next.kind != "end":
            raise self.fault("an operator or the end")
        return expression

    def any_of(self) -> Expression:
        self.enter()
        expression = self.logic("or", self.all_of)
        self.levels -= 1
        return expression

    def all_of(self) -> Expression:
        return self.logic("and", self.inverse)

    def logic(self, word: str, part: Callable[[], Expression]) -> Expression:
        column = self.next.column
        parts = [part()]
        while self.take(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else self.make(column, lambda: tree.join(word, tuple(parts)))

    def inverse(self) -> Expression:
        token = self.take("not")
        if token is None:
            return self.compare()
        self.enter()
        operand = self.inverse()
        self.levels -= 1
        return self.make(token.column, lambda: Not(operand))

    def compare(self) -> Expression:
        column = self.next.column
        operands = [self.sum()]
        negated, word = self.take("not"), self.take("in")
        if word:
            options = self.constants()
            return self.make(column, lambda: InList(operands[0], options, negated is not None))
        if negated:
            raise self.fault("in")
        operators = []
        while self.next.kind == "operator" and self.next.text in _COMPARISONS:
            operators.append(self.next.text)
            self.at += 1
            operands.append(self.sum())
        if not operators:
            return operands[0]
        return self.make(column, lambda: Comparison(tuple(operators), tuple(operands)))

    def constants(self) -> tuple[Literal, ...]:
        self.demand("[")
        options: list[Literal] = []
        while not self.take("]"):
            if options:
                self.demand(",")
            token = self.next
            option = self.unary()
            if not isinstance(option, Literal):
                raise self.fault("a number or a string in the list", token)
            options.append(option)
        return tuple(options)

    def sum(self) -> Expression:
        return self.left(("+", "-"), self.term)

    def term(self) -> Expression:
        return self.left(("*", "/", "%"), self.unary)

    def left(self, operators: tuple[str, ...], part: Callable[[], Expression]) -> Expression:
        column = self.next.column
        expression = part()
        while token := self.take(*operators):
            right = part()
            expression = self.make(column, partial(Arithmetic, token.text, expression, right))
        return expression

    def unary(self) -> Expression:
        token = self.take("-")
        if token is None:
            return self.power()
        self.enter()
        operand = self.unary()
        self.levels -= 1
        return self.make(token.column, lambda: tree.negate(operand))

    def power(self) -> Expression:
        column = self.next.column
        base = self.atom()
        if not self.take("**"):
            return base
        self.enter()
        exponent = self.unary()
        self.levels -= 1
        return self.make(column, lambda: Arithmetic("**", base, exponent))

    def atom(self) -> Expression:
        token = self.next
        if self.take("("):
            inner = self.any_of()
            self.demand(")")
            return inner
        self.at += 1
        match token.kind:
            case "number":
                return self.make(token.column, lambda: Literal(_number(token.text)))
            case "string":
                return self.make(token.column, lambda: Literal(_string(token.text)))
            case "quoted":
                return self.make(token.column, lambda: Field(token.text[1:-1]))
            case "name" if self.next.text == "(" and token.text not in WORDS:
                return self.call(token)
            case "name" if token.text in _CONSTANTS:
                return self.make(token.column, lambda: Literal(_CONSTANTS[token.text]))
            case "name" if token.text not in WORDS and token.text not in _INSTEAD:
                return self.make(token.column, lambda: Field(token.text))
        raise self.fault("a value", token)

    def call(self, token: _Token) -> Expression:
        self.demand("(")
        arguments: list[Expression] = []
        while not self.take(")"):
            if arguments:
                self.demand(",")
            arguments.append(self.any_of())
        return self.make(token.column, lambda: Call(token.text, tuple(arguments)))


def _number(text: str) -> int | float:
    # No integer of more than 20 digits is read exactly: int() of many digits takes time quadratic in their number.
    return int(text) if text.isdigit() and len(text.lstrip("0")) <= 20 else float(text)


def _string(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        code = found.group(1)
        if code[0] == "u" and len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            raise ValueError(f"expected one of \\\\ \\' \\\" \\n \\t \\r \\uXXXX in a string, got \\{show(code)[1:-1]}")
        return _ESCAPES[code]

    return _ESCAPE.sub(replace, text[1:-1])
