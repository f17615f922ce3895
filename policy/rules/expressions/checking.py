"""Is this text an expression, of the right type, over variables allowed in this place?

The CEL library judges; this module says it in the words of rule files, with the position and
the extent of what is wrong.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from policy.rules.expressions import syntax
from policy.rules.expressions.compiler import history_call, history_calls, kind_of, type_of
from policy.rules.expressions.constants import mistakes
from policy.rules.expressions.cost import ASSUMED, MAX_COST, MAX_STEPS, dearest_loop, estimate
from policy.rules.expressions.defaults import with_defaults
from policy.rules.expressions.engine import environment
from policy.rules.expressions.semantics import DEFAULTS
from policy.rules.expressions.syntax import CheckedTree
from policy.rules.expressions.variables import (
    GROUPS,
    HISTORY_FUNCTIONS,
    VARIABLES,
    Context,
    ValueType,
)

MAX_SOURCE = 10_000
"""Characters; far more than a rule that people can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """One thing wrong with an expression."""

    offset: int  #: characters from the start of the source
    length: int
    message: str
    help: str | None = None


class ExpressionError(Exception):
    """The text is no expression that a rule may hold; all complaints at once."""

    def __init__(self, source: str, complaints: tuple[Complaint, ...]) -> None:
        super().__init__("; ".join(complaint.message for complaint in complaints))
        self.source = source
        self.complaints = complaints


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A type-checked expression before compilation."""

    tree: CheckedTree
    serialized: bytes
    type: ValueType
    variables: tuple[str, ...]
    history_needs: frozenset[tuple[str, int | None]]


_DEFAULTS = {type_of(kind): default for kind, default in DEFAULTS.items()}
_ERROR = re.compile(r"^(?:[A-Z_]+: )?ERROR: <input>:(-?\d+):(-?\d+): (.*)$", re.MULTILINE)
_TOKEN = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|\d[\w.]*|'[^'\n]*'|\"[^\"\n]*\"|[<>=!]=|&&|\|\||."
)
_UNDECLARED = re.compile(r"undeclared reference to '([^']*)'")
_OVERLOAD = re.compile(r"found no matching overload for '([^']*)' applied to '(.*)'")
_TYPE_NAMES = (
    ("google.protobuf.Duration", "duration"),
    ("google.protobuf.Timestamp", "timestamp"),
)
_FUNCTIONS = (
    "size",
    "startsWith",
    "endsWith",
    "contains",
    "matches",
    "int",
    "string",
    "duration",
    "timestamp",
    "has",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getDayOfWeek",
    *(f"history.{name}" for name in HISTORY_FUNCTIONS),
)


_USAGE = {
    f"history.{name}": f"history.{name}({argument}, duration('1h'))"
    if function.windowed
    else f"history.{name}({argument})"
    for name, function in HISTORY_FUNCTIONS.items()
    for argument in [f"victim.{function.argument}"]
}


def check(source: str, *, context: Context, expected: frozenset[ValueType]) -> Checked:
    """Parse and type-check; raises `ExpressionError`."""
    if not source.strip():
        raise ExpressionError(source, (Complaint(offset=0, length=1, message="empty expression"),))
    if len(source) > MAX_SOURCE:
        message = f"expression of {len(source)} characters, more than {MAX_SOURCE}"
        raise ExpressionError(source, (Complaint(offset=0, length=1, message=message),))
    try:
        serialized = with_defaults(environment().compile(source).serialize(), _DEFAULTS)
    except RuntimeError as exc:
        raise ExpressionError(source, tuple(_translate(source, str(exc), context))) from exc
    tree = syntax.decode(serialized)
    type_ = kind_of(tree.root.type)
    complaints = list(_places(source, tree, context))
    dear = _too_dear(source, tree)
    complaints += dear or _mistakes(source, tree)
    if type_ is None or type_ not in expected:
        complaints.append(_wrong_type(source, tree, expected))
    needs, history_complaints = _history(source, tree)
    complaints += history_complaints
    if complaints or type_ is None:
        raise ExpressionError(source, tuple(sorted(complaints, key=lambda c: c.offset)))
    names = {identifier.name for identifier in syntax.free_identifiers(tree.root)}
    needs |= {(VARIABLES[name].history, None) for name in names if VARIABLES[name].history}
    return Checked(
        tree=tree,
        serialized=serialized,
        type=type_,
        variables=tuple(sorted(names)),
        history_needs=frozenset(needs),
    )


def _wrong_type(source: str, tree: CheckedTree, expected: frozenset[ValueType]) -> Complaint:
    if expected == {ValueType.BOOL}:
        wanted = "a condition (bool)"
    else:
        names = [kind.value for kind in ValueType if kind in expected]
        wanted = f"{', '.join(names[:-1])} or {names[-1]}"
    return Complaint(
        offset=0,
        length=max(1, len(source.partition("\n")[0])),
        message=f"expression has type {tree.root.type}, but {wanted} is needed",
        help=_truth_help(tree) if expected == {ValueType.BOOL} else None,
    )


def _truth_help(tree: CheckedTree) -> str | None:
    if isinstance(tree.root, syntax.Identifier):
        return f"compare it with something: `{tree.root.name} == ...`"
    return None


def _places(source: str, tree: CheckedTree, context: Context) -> Iterator[Complaint]:
    """Variables that exist, but not in this place."""
    for identifier in syntax.free_identifiers(tree.root):
        variable = VARIABLES.get(identifier.name)
        if variable is not None and context not in variable.contexts:
            allowed = ", ".join(place.value for place in Context if place in variable.contexts)
            yield Complaint(
                offset=_name_start(source, identifier.offset, identifier.name),
                length=len(identifier.name),
                message=f"`{identifier.name}` is not available",
                help=f"{_place(context)} cannot see it; it may be used in: {allowed}",
            )


def _place(context: Context) -> str:
    return {
        Context.ELIGIBILITY: "eligibility rules",
        Context.VICTIMS: "rules about victims",
        Context.FORBID: "forbid rules",
        Context.IMPORTANCE: "the importance order",
        Context.RANKING: "the ranking",
        Context.SCORING: "the score of a node",
        Context.GROUP_ELIGIBILITY: "eligibility rules of pod groups",
        Context.UNITS: "rules about units",
        Context.UNIT_IMPORTANCE: "the importance order of units",
    }[context]


def _too_dear(source: str, tree: CheckedTree) -> list[Complaint]:
    """An expression that one pod among thousands must not wait for."""
    found = estimate(tree.root)
    if found.cost <= MAX_COST and found.steps <= MAX_STEPS:
        return []
    loop = dearest_loop(tree.root)
    start = _start(source, loop)
    if found.steps > MAX_STEPS:
        message = (
            f"the loops of the expression make about {found.steps:,} passes, more than the "
            f"{MAX_STEPS:,} that one evaluation may make"
        )
    else:
        message = (
            f"the expression costs about {found.cost:,} units, more than the {MAX_COST:,} that "
            "one evaluation may cost"
        )
    labels = ASSUMED["labels"].count
    return [
        Complaint(
            offset=start,
            length=_token_length(source, start),
            message=message,
            help=f"a loop within a loop multiplies, and {labels} labels are assumed: "
            "read one by its key, or use `in`",
        )
    ]


def _mistakes(source: str, tree: CheckedTree) -> Iterator[Complaint]:
    for mistake in mistakes(tree):
        start = _start(source, mistake.node)
        yield Complaint(
            offset=start,
            length=_extent(source, start, mistake.node),
            message=mistake.message,
            help=mistake.help,
        )


def _extent(source: str, start: int, node: syntax.SyntaxNode) -> int:
    """Characters to underline: a literal, or everything up to the last operand's end."""
    last = max((part.offset for part in syntax.walk(node)), default=start)
    end = max(last, start) + _token_length(source, max(last, start))
    call = isinstance(node, syntax.Call) and source[node.offset : node.offset + 1] == "("
    return end - start + (call and source[end : end + 1] == ")")


def _history(
    source: str,
    tree: CheckedTree,
) -> tuple[set[tuple[str, int | None]], list[Complaint]]:
    needs: set[tuple[str, int | None]] = set()
    complaints: list[Complaint] = []
    for call in history_calls(tree.root):
        try:
            function, window = history_call(call)
        except ValueError:
            complaints.append(
                Complaint(
                    offset=_start(source, call.arguments[1]),
                    length=_token_length(source, _start(source, call.arguments[1])),
                    message=f"the window of `{call.function}` is not a literal duration of "
                    "whole seconds",
                    help="figures are collected before the decision, so the window cannot be "
                    "computed: write `duration('1h')`",
                )
            )
        else:
            needs.add((function.name, window))
    return needs, complaints


def _start(source: str, node: syntax.SyntaxNode) -> int:
    """Where a part of the expression starts; operators and calls stand behind their operands."""
    return min(_own_start(source, part) for part in syntax.walk(node))


def _own_start(source: str, part: syntax.SyntaxNode) -> int:
    if isinstance(part, syntax.Identifier):
        return _name_start(source, part.offset, part.name)
    if isinstance(part, syntax.Call) and source[part.offset : part.offset + 1] == "(":
        start = part.offset - len(part.function)
        return start if source[max(start, 0) : part.offset] == part.function else part.offset
    return part.offset


def _translate(source: str, text: str, context: Context) -> Iterator[Complaint]:
    """The library's report in our words; one complaint per place."""
    lines = source.split("\n")
    seen: set[int] = set()
    for match in _ERROR.finditer(text):
        line, column, message = int(match[1]), int(match[2]), match[3]
        if line < 1:
            line = column = 1
        offset = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
        # After one syntax error the parser guesses, and so do the errors that follow.
        if offset in seen or (seen and "Syntax error" in message):
            continue
        seen.add(offset)
        # An unknown `history.` function is reported once more for its first half, and a text
        # that cannot be parsed once more as a whole.
        echo = message.startswith("undeclared reference to 'history'") or "<<nil>>" in message
        if not echo:
            yield _complaint(source, offset, message, context)
    if not seen:
        message = text.partition(":")[2].partition("[")[0].strip().lower() or text
        if "recursion limit" in message:
            message = "the expression is nested too deeply"
        yield Complaint(offset=0, length=1, message=message)


def _complaint(source: str, offset: int, message: str, context: Context) -> Complaint:
    undeclared = _UNDECLARED.match(message)
    if undeclared:
        return _unknown(source, offset, undeclared[1], context)
    overload = _OVERLOAD.match(message)
    if overload:
        return _overload(source, offset, overload[1], overload[2])
    if "recursion" in message:
        return Complaint(offset=offset, length=1, message="the expression is nested too deeply")
    if "Syntax error" in message:
        found = _token(source, offset)
        what = f"unexpected `{found}`" if found.strip() else "the expression is incomplete"
        return Complaint(
            offset=offset,
            length=max(1, len(found)),
            message=f"syntax error: {what}",
            help=_syntax_help(source, found),
        )
    if "operand of a select" in message:
        return Complaint(
            offset=offset,
            length=1,
            message="only a map has fields",
            help="a label with dots or slashes is read as `labels['app.kubernetes.io/name']`",
        )
    return Complaint(
        offset=offset,
        length=_token_length(source, offset),
        message=message[:1].lower() + message[1:],
    )


def _overload(source: str, offset: int, function: str, types: str) -> Complaint:
    for long, short in _TYPE_NAMES:
        types = types.replace(long, short)
    types = types.removeprefix("(").removesuffix(")")
    shown = {"_[_]": "[]", "_?_:_": "? :"}.get(function, function.strip("_@"))
    if function == "_?_:_":
        _, _, branches = types.partition(", ")
        message = f"the two sides of `? :` must have one type, not {branches}"
    else:
        message = f"`{shown}` does not apply to {types}"
    return Complaint(
        offset=offset,
        length=_token_length(source, offset),
        message=message,
        help=_overload_help(function, types),
    )


def _syntax_help(source: str, found: str) -> str | None:
    if re.search(r"(?<![=!<>])=(?!=)", source):
        return "equality is `==`"
    for word, operator in ((" and ", "&&"), (" or ", "||"), ("not ", "!")):
        if word in source:
            return f"`{word.strip()}` is written `{operator}`"
    if found == "#":
        return "an expression has no comments"
    return None


def _overload_help(function: str, types: str) -> str | None:
    if function in ("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_") and "timestamp" in types:
        return "write an instant as `timestamp('2026-01-31T12:00:00Z')`"
    if "string" in types and "int" in types:
        return "convert with `int(...)` or `string(...)`"
    if "double" in types:
        return "quantities are whole numbers: leave out the decimal point"
    return None


def _token(source: str, offset: int) -> str:
    match = _TOKEN.match(source, offset)
    return match[0] if match else ""


def _token_length(source: str, offset: int) -> int:
    return max(1, len(_token(source, offset)))


def _unknown(source: str, offset: int, name: str, context: Context) -> Complaint:
    if source[offset : offset + 1] == "(":
        # The library points at the parenthesis of an unknown function.
        start = max(source.rfind(name, 0, offset), 0)
        if source[:start].endswith("history."):
            start, name = start - len("history."), f"history.{name}"
        if name in _USAGE:
            return Complaint(
                offset=start,
                length=len(name),
                message=f"`{name}` is called with other arguments than it takes",
                help=f"write `{_USAGE[name]}`",
            )
        close = difflib.get_close_matches(name, _FUNCTIONS, n=1)
        return Complaint(
            offset=start,
            length=len(name),
            message=f"unknown function `{name}`",
            help=f"did you mean `{close[0]}`?" if close else None,
        )
    return Complaint(
        offset=_name_start(source, offset, name),
        length=len(name),
        message=f"unknown variable `{name}`",
        help=_meant(name, context),
    )


def _name_start(source: str, offset: int, name: str) -> int:
    """Where a dotted name starts; the library points at its last dot."""
    start = offset - max(name.rfind("."), 0)
    return start if source[start : start + len(name)] == name else offset


def _meant(name: str, context: Context) -> str | None:
    here = [known for known, variable in VARIABLES.items() if context in variable.contexts]
    # What a rule is about comes before what is known everywhere.
    here.sort(key=lambda known: known.startswith("preemptor."))
    if name in GROUPS:
        fields = [known for known in here if known.startswith(f"{name}.")]
        if fields:
            return f"name one of its fields: `{fields[0]}`, `{fields[1]}`, ..."
        return f"`{name}` is not known in {_place(context)}"
    if "." not in name:
        for known in here:
            if known.endswith(f".{name}"):
                return f"did you mean `{known}`?"
        if name in ("on", "off", "yes", "no"):
            return "truth values are written `true` and `false`"
        close = difflib.get_close_matches(name, [*here, "true", "false"], n=1)
        return f"did you mean `{close[0]}`?" if close else "text is written in quotes"
    # Fields behind a variable are looked up too: `victim.labls.tier` means `victim.labels`.
    group, field_name = name.split(".")[:2]
    by_field = {
        known.partition(".")[2].lower(): known for known in here if known.startswith(f"{group}.")
    }
    close = difflib.get_close_matches(field_name.lower(), by_field, n=1, cutoff=0.65)
    if close:
        return f"did you mean `{by_field[close[0]]}`?"
    groups = difflib.get_close_matches(group, GROUPS, n=1, cutoff=0.65)
    if groups and groups[0] != group:
        return f"did you mean `{groups[0]}.{field_name}`?"
    if "labels" in by_field:
        return f"a label is read as `{group}.labels['{field_name}']`"
    return None
