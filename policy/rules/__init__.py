"""Rule sets: files that say who may preempt, who may be a victim, and how nodes rank.

Names are imported when first used, so that `import policy.rules` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policy.rules.problems import RulesError
    from policy.rules.ruleset import RuleSet
    from policy.text.problems import Problem

__all__ = ["Problem", "RuleSet", "RulesError"]

_HOMES = {
    "Problem": "policy.text.problems",
    "RuleSet": "policy.rules.ruleset",
    "RulesError": "policy.rules.problems",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
