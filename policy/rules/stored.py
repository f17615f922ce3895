"""Reading a stored rule set with a later release: it goes on meaning what it meant.

A canonical text holds every setting that its release knew, defaults included. What it does not hold
came later. Such a setting declares the value that means the same as its absence did (`before`, of
a filter's or scorer's parameter, or in the `json_schema_extra` of a model's field); without one
the text is refused, never read with a newer default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from policy.rules.canonical import EXPLANATIONS
from policy.rules.checks import Registry
from policy.rules.schema import RULE_NAMES, RuleFileModel
from policy.text.problems import Problem

BEFORE: Final = "before"
"""Key of `json_schema_extra`: what a stored rule set without the field means."""

_UNKNOWN: Final = object()


def complete(value: Any, registries: Mapping[str, Registry]) -> list[Problem]:
    """Fill in, in place, what a canonical value was stored without; the settings that cannot be.

    registries: of `filters` and `scoring`.
    """
    problems = list(_fields(RuleFileModel, value, ""))
    spec = value.get("spec")
    for section, registry in registries.items():
        uses = spec.get(section, ()) if isinstance(spec, dict) else ()
        for index, use in enumerate(uses if isinstance(uses, list) else ()):
            problems += _parameters(use, RULE_NAMES[section], registry, f"spec.{section}[{index}]")
    return problems


def _fields(model: type[BaseModel], value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        return
    for name, field in model.model_fields.items():
        here = f"{path}.{name}" if path else name
        if name in value:
            yield from _nested(field.annotation, value[name], here)
        elif not field.is_required() and name not in EXPLANATIONS:
            before = _before(field)
            if before is not _UNKNOWN:
                value[name] = before
            elif field.default is not None:
                yield _problem(here, name)


def _nested(annotation: Any, value: Any, path: str) -> Iterator[Problem]:
    model = next(_models(annotation), None)
    if model is None:
        return
    for index, item in enumerate(value if isinstance(value, list) else [value]):
        yield from _fields(model, item, f"{path}[{index}]" if isinstance(value, list) else path)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _before(field: FieldInfo) -> Any:
    extra = field.json_schema_extra
    return extra.get(BEFORE, _UNKNOWN) if isinstance(extra, dict) else _UNKNOWN


def _parameters(use: Any, key: str, registry: Registry, path: str) -> Iterator[Problem]:
    if not isinstance(use, dict) or use.get(key) not in registry:
        return
    for name, parameter in registry[use[key]].parameters.items():
        if name not in use:
            if parameter.before is None:
                yield _problem(f"{path}.{name}", name)
            else:
                use[name] = parameter.before


def _problem(path: str, name: str) -> Problem:
    return Problem(
        source="<canonical>",
        field=path,
        message=f"stored without `{name}`, by a release that did not know it",
        help="no value is known that means the same; load the rules from their file again",
    )
