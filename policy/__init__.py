"""Decides preemptions from rule files, explains them, and keeps every decision.

    from policy import Snapshot, RuleSet, decide

    snapshot = Snapshot.from_manifests(objects, now=datetime.now(UTC))
    rules = RuleSet.load("kube-1.36")
    decision = decide(snapshot, rules, "namespace/name", seed=0)

The names below are imported when they are first used: `import policy` itself loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policy import lazy

if TYPE_CHECKING:
    from policy.decision.model import (
        Candidate,
        Code,
        Decision,
        DecisionTrace,
        Effects,
        Outcome,
        Status,
        Victim,
    )
    from policy.face import Snapshot
    from policy.preemption.decide import decide
    from policy.rules import RuleSet

__version__ = "0.1.0"

__all__ = [
    "Candidate",
    "Code",
    "Decision",
    "DecisionTrace",
    "Effects",
    "Outcome",
    "RuleSet",
    "Snapshot",
    "Status",
    "Victim",
    "__version__",
    "decide",
]

_HOMES: Final = {
    "Candidate": "policy.decision.model",
    "Code": "policy.decision.model",
    "Decision": "policy.decision.model",
    "Effects": "policy.decision.model",
    "Outcome": "policy.decision.model",
    "RuleSet": "policy.rules",
    "Snapshot": "policy.face",
    "Status": "policy.decision.model",
    "DecisionTrace": "policy.decision.model",
    "Victim": "policy.decision.model",
    "decide": "policy.preemption.decide",
}

__getattr__ = lazy.names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
