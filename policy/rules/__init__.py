"""Rule sets: files that say who may preempt, who may be a victim, and how nodes rank.

Names are imported when first used, so that `import policy.rules` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policy import lazy

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

__getattr__ = lazy.names(__name__, _HOMES)
