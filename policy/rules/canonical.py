"""The canonical text of a rule set, and its digest.

It is canonical JSON (`policy.cluster.canonical`) and holds what decides: the name and every rule
with its defaults filled in (also where nothing is set: `maxVictims` is null then), overlays and
overrides merged, expressions by their text without surrounding white space.
`metadata.description`, `metadata.versions` and every `why` are left out: they explain and do not
decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from policy.cluster import canonical
from policy.rules.expressions import default_on_error
from policy.rules.schema import RuleFileModel

EXPLANATIONS = frozenset({"why", "description", "versions"})


def canonical_text(
    model: RuleFileModel, parameters: Mapping[tuple[str, str], Mapping[str, Any]]
) -> str:
    """The canonical text of a validated rule file.

    `parameters`: ("filters" or "scoring", name) to every parameter, defaults filled in.
    """
    value = _without_explanations(model.model_dump(mode="json", exclude_none=True))
    spec = value["spec"]
    spec["victims"].setdefault("maxVictims", None)
    groups = spec.get("groups", {})
    for rules in (
        spec["eligibility"],
        spec["victims"]["eligible"],
        spec["victims"]["forbid"],
        groups.get("eligibility", ()),
        groups.get("victims", {}).get("eligible", ()),
    ):
        for rule in rules:
            if "when" in rule:
                verdict = rule.get("verdict", "forbid")
                rule.setdefault("onError", default_on_error(verdict).value)
    for section, key in (("filters", "filter"), ("scoring", "scorer")):
        for use in spec[section]:
            use.update(parameters[section, use[key]])
    text = canonical.text(value)
    canonical.parse(text)  # it can be read back: parameters hold no float
    return text


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
