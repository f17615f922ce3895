"""The generated tables of `docs/rules.md`: `python -m policy.rules.reference docs/rules.md`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

import msgspec
from pydantic import BaseModel

from policy.filters.base import Parameter, Value
from policy.filters.registry import FILTERS
from policy.rules.expressions.cost import ASSUMED
from policy.rules.expressions.semantics import MEANING, NoValue
from policy.rules.expressions.variables import (
    GROUPS,
    HISTORY_FUNCTIONS,
    VARIABLES,
    Context,
)
from policy.rules.files import shipped_environments, shipped_names, shipped_rules
from policy.rules.group_schema import GroupsModel
from policy.rules.ruleset import RuleSet
from policy.scoring.registry import SCORERS

_MARK: Final = re.compile(
    r"(<!-- generated: (?P<name>[a-z-]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL
)
_ALL: Final = frozenset(Context)


def updated(page: str) -> str:
    """The page with its generated parts made anew. Raises KeyError for an unknown part."""
    return _MARK.sub(lambda m: f"{m[1]}\n{PARTS[m['name']]()}\n{m[3]}", page)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(header)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def variables() -> str:
    """Every variable, group by group."""
    parts = []
    for group in GROUPS:
        found = [v for name, v in VARIABLES.items() if name.partition(".")[0] == group]
        heading = f"#### `{group}`" if found[0].name == group else f"#### `{group}.*`"
        rows = (
            (f"`{v.name}`", f"`{v.type.value}`", v.unit, v.doc, _where(v.contexts)) for v in found
        )
        table = _table(("variable", "type", "unit", "meaning", "where"), rows)
        parts.append(f"{heading}\n\n{table}")
    return "\n".join(parts)


def _where(contexts: frozenset[Context]) -> str:
    if contexts == _ALL:
        return "everywhere"
    return ", ".join(context.value for context in Context if context in contexts)


def history() -> str:
    """The functions that look at the past."""
    rows = []
    for function in HISTORY_FUNCTIONS.values():
        window = ", duration('1h')" if function.windowed else ""
        call = f"`history.{function.name}({function.argument}{window})`"
        rows.append((call, "`int`", function.doc))
    return _table(("function", "type", "meaning"), rows)


def filters() -> str:
    """Every filter with its parameters."""
    return _registered(FILTERS)


def scorers() -> str:
    """Every scorer with its parameters."""
    return _registered(SCORERS)


def _registered(registry: Mapping[str, Any]) -> str:
    parts = []
    for name, info in registry.items():
        text = f"#### `{name}`\n\n{' '.join(info.doc.split())}\n\n(kube-scheduler: {info.plugin})\n"
        if info.parameters:
            rows = (
                (f"`{key}`", _values(p), f"`{_yaml(p.default)}`", p.doc)
                for key, p in info.parameters.items()
            )
            text += "\n" + _table(("parameter", "values", "default", "meaning"), rows)
        parts.append(text)
    return "\n".join(parts)


def _values(parameter: Parameter) -> str:
    if parameter.choices is not None:
        return ", ".join(f"`{choice}`" for choice in parameter.choices)
    if parameter.entry is not None:
        keys = ", ".join(field.encode_name for field in msgspec.structs.fields(parameter.entry))
        return f"a list of `{{{keys}}}`"
    kind = parameter.type
    return "`true`, `false`" if kind is bool else "a whole number" if kind is int else "text"


def _yaml(value: Value) -> str:
    if isinstance(value, tuple):
        return "[" + ", ".join(json.dumps(dict(entry)) for entry in value) + "]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def rule_sets() -> str:
    """The shipped rule sets that stand for themselves."""
    return _described(shipped_names())


def rules() -> str:
    """The shipped rules that overlays include."""
    return _described(shipped_rules())


def environments() -> str:
    """The shipped overlays for environments."""
    return _described(shipped_environments())


def _described(names: Iterable[str]) -> str:
    return _table(
        ("name", "what it does"), ((f"`{n}`", RuleSet.load(n).description) for n in names)
    )


_PLACES: Final[Mapping[Context, str]] = {
    Context.ELIGIBILITY: "`eligibility`",
    Context.VICTIMS: "`victims.eligible`",
    Context.FORBID: "`victims.forbid`",
    Context.IMPORTANCE: "`victims.importance`",
    Context.RANKING: "`ranking`",
    Context.SCORING: "`scoring`",
    Context.GROUP_ELIGIBILITY: "`groups.eligibility`",
    Context.UNITS: "`groups.victims.eligible`",
    Context.UNIT_IMPORTANCE: "`groups.victims.importance`",
}


def no_value() -> str:
    """What an expression without a value means in each place."""
    rows = ((_PLACES[place], meaning) for place, meaning in MEANING.items())
    return _table(("where", "an expression without a value"), rows)


def reasons() -> str:
    """Why an expression has no value."""
    return "".join(f"- {why.value}\n" for why in NoValue)


def assumed() -> str:
    """Sizes that the estimate of a cost assumes."""
    rows = (
        (
            name,
            "" if size.entry is None else str(size.count),
            str(size.count if size.entry is None else size.entry.count),
            "" if size.value is None else str(size.value.count),
        )
        for name, size in ASSUMED.items()
    )
    return _table(("what", "entries", "characters (of a key)", "characters of a value"), rows)


def groups() -> str:
    """The keys of the section `groups`, with their values and defaults."""
    rows = _keys(GroupsModel, "")
    return _table(("key", "values", "default", "meaning"), rows)


def _keys(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _keys(kind, f"{prefix}{name}.")
        elif field.description:
            default = f"`{_yaml(field.default)}`"
            yield f"`{prefix}{name}`", _choices(kind), default, field.description


def _choices(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{choice.value}`" for choice in kind)
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    return "`true`, `false`" if kind is bool else "a whole number"


PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "variables": variables,
    "history": history,
    "no-value": no_value,
    "reasons": reasons,
    "assumed": assumed,
    "filters": filters,
    "scorers": scorers,
    "groups": groups,
    "rule-sets": rule_sets,
    "rules": rules,
    "environments": environments,
}
"""Name of a generated part, and what makes it."""


def main(files: Iterable[str]) -> None:
    """Write the generated parts of pages anew."""
    for name in files:
        page = Path(name)
        page.write_text(updated(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
