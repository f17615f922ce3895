"""Where an expression may come to have no value: what lint warns of, read from the checked tree.

What this does not name cannot fail, as long as instants stay within the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policy.rules.expressions import syntax
from policy.rules.expressions.syntax import Call, Comprehension, Constant, ListLiteral, SyntaxNode
from policy.rules.expressions.syntax import MapLiteral as MapOf
from policy.rules.expressions.variables import VARIABLES


@dataclass(frozen=True, slots=True)
class Hazard:
    """One operation that may have no value."""

    offset: int  #: characters from the start of the source
    what: str  #: `a division by a variable`
    likely: bool  #: ordinary values bring it about; no number has to leave the range of int64


_TOTAL: Final = frozenset(
    {
        *("_&&_", "_||_", "!_", "_?_:_", "_==_", "_!=_", "@in", "@not_strictly_false"),
        *("size", "startsWith", "endsWith", "contains", "type", "dyn", "_[?_]", "orValue"),
        *("_<_", "_<=_", "_>_", "_>=_", "bytes"),
    }
)
_CONVERSIONS: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"int", "timestamp"}),
    "uint": frozenset({"uint"}),
    "double": frozenset({"int", "uint", "double"}),
    "bool": frozenset({"bool"}),
    "string": frozenset({"string", "int", "uint", "double", "bool", "timestamp", "duration"}),
    "duration": frozenset({"duration"}),
    "timestamp": frozenset({"timestamp"}),
}
"""Functions that convert, and the types that each converts whatever the value is."""
_NO_FIGURES: Final = ("history figures that the snapshot does not have", False)
_FRACTIONS: Final = frozenset({"double"})
_OPEN: Final = frozenset({"dyn", "other"})


def hazards(root: SyntaxNode) -> Iterator[Hazard]:
    """Every operation below (and at) a node that may have no value."""
    for node in syntax.walk(root):
        found = _hazard(node)
        if found is not None:
            what, likely = found
            yield Hazard(node.offset, what, likely)


def _hazard(node: SyntaxNode) -> tuple[str, bool] | None:
    if isinstance(node, Comprehension):
        return "a loop over a very large list or map", False
    if isinstance(node, MapOf) and any(not isinstance(key, Constant) for key in node.entries[::2]):
        return "a map with keys that may be equal", False
    if isinstance(node, syntax.Select) and not node.test_only:
        return (
            None
            if _listed(node.operand, node.field)
            else (f"reading `.{node.field}` of a map", True)
        )
    if isinstance(node, syntax.Identifier):
        variable = VARIABLES.get(node.name)
        return _NO_FIGURES if variable is not None and variable.history else None
    if not isinstance(node, Call):
        return None
    if node.function not in ("dyn", "type") and any(a.type.name in _OPEN for a in node.arguments):
        mixed = not (node.function == "orValue" or _bookkeeping(node))
        return ("an operator on values of mixed types", True) if mixed else None
    if node.function in _TOTAL:
        return None
    return _RULES.get(node.function, _other)(node)


def _bookkeeping(node: Call) -> bool:
    """A step of a loop, on the list that it collects."""
    return node.function in ("_+_", "_?_:_", "@not_strictly_false", "_&&_", "_||_")


def _listed(container: SyntaxNode, key: str | int | object) -> bool:
    """A literal list or map that surely has the key: loading refuses it otherwise."""
    if isinstance(container, MapOf):
        return all(isinstance(entry, Constant) for entry in container.entries[::2])
    return isinstance(container, ListLiteral) and isinstance(key, int)


def _division(node: Call) -> tuple[str, bool] | None:
    divisor = node.arguments[1]
    if node.type.name in _FRACTIONS:
        return None
    if isinstance(divisor, Constant) and divisor.value != -1:
        return None
    if isinstance(divisor, Constant):
        return "a number that leaves the range", False
    what = "a division" if node.function == "_/_" else "a remainder"
    return f"{what} by what may be zero", True


def _arithmetic(node: Call) -> tuple[str, bool] | None:
    if node.type.name in ("string", "list", "bytes", "double"):
        return None
    return "a number that leaves the range", False


def _index(node: Call) -> tuple[str, bool] | None:
    container, key = node.arguments
    if isinstance(key, Constant) and _listed(container, key.value):
        return None
    what = "an index of a list" if container.type.name == "list" else "a key of a map"
    return f"{what} that may not be there", True


def _pattern(node: Call) -> tuple[str, bool] | None:
    if isinstance(node.arguments[1], Constant):
        return None
    return "a pattern that is made from values", True


def _conversion(node: Call) -> tuple[str, bool] | None:
    operand = node.arguments[0]
    if isinstance(operand, Constant) or operand.type.name in _CONVERSIONS[node.function]:
        return None
    if operand.type.name in ("string", "bytes"):
        kind = "text" if operand.type.name == "string" else "bytes"
        return f"`{node.function}(...)` of {kind}", True
    return f"`{node.function}(...)` of a number out of range", node.function == "uint"


def _other(node: Call) -> tuple[str, bool] | None:
    if node.function.startswith("history."):
        return _NO_FIGURES
    if node.function.startswith("get"):
        constant = len(node.arguments) < 2 or isinstance(node.arguments[1], Constant)
        return None if constant else ("a time zone that is made from values", True)
    return f"`{node.function}`", True


_RULES: Final[Mapping[str, Callable[[Call], tuple[str, bool] | None]]] = {
    "_/_": _division,
    "_%_": _division,
    "_+_": _arithmetic,
    "_-_": _arithmetic,
    "_*_": _arithmetic,
    "-_": _arithmetic,
    "_[_]": _index,
    "matches": _pattern,
    **dict.fromkeys(_CONVERSIONS, _conversion),
}
