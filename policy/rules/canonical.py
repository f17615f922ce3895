"""The canonical text of a rule set, and its digest.

Canonical JSON after RFC 8785: keys sorted by UTF-16 code units, no white space, UTF-8; the
only numbers are integers. It holds what decides: the name and every rule with its defaults
filled in (also where nothing is set: `maxVictims` is null then), overlays and overrides merged,
expressions by their text without surrounding white space. `metadata.description` and every `why`
are left out: they explain and do not decide.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from policy.rules.expressions import default_on_error
from policy.rules.schema import RuleFileModel

EXPLANATIONS = frozenset({"why", "description"})


def canonical_json(value: Any) -> str:
    """A JSON value as canonical text."""
    return json.dumps(_ordered(value), ensure_ascii=False, separators=(",", ":"))


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        keys = sorted(value, key=lambda key: str(key).encode("utf-16-be", "surrogatepass"))
        return {key: _ordered(value[key]) for key in keys}
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in value]
    assert not isinstance(value, float)
    return value


def digest_of(canonical: str) -> str:
    """`sha256:` and the hash of the text."""
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def canonical_text(
    model: RuleFileModel, parameters: Mapping[tuple[str, str], Mapping[str, Any]]
) -> str:
    """The canonical text of a validated rule file.

    `parameters`: ("filters" or "scoring", name) to every parameter, defaults filled in.
    """
    value = _without_explanations(model.model_dump(mode="json", exclude_none=True))
    spec = value["spec"]
    spec["victims"].setdefault("maxVictims", None)
    for rules in (spec["eligibility"], spec["victims"]["eligible"], spec["victims"]["forbid"]):
        for rule in rules:
            if "when" in rule:
                verdict = rule.get("verdict", "forbid")
                rule.setdefault("onError", default_on_error(verdict).value)
    for section, key in (("filters", "filter"), ("scoring", "scorer")):
        for use in spec[section]:
            use.update(parameters[section, use[key]])
    return canonical_json(value)


def _without_explanations(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: item.strip() if key in _EXPRESSIONS else _without_explanations(item)
            for key, item in value.items()
            if key not in EXPLANATIONS
        }
    if isinstance(value, list):
        return [_without_explanations(item) for item in value]
    return value


_EXPRESSIONS = frozenset({"when", "ascending", "descending", "minimize", "maximize"})
