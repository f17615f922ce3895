"""The comparison finds a rule set that is wrong in one detail: each mutant is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policy import RuleSet
from policy.conformance import Agreement, run
from policy.conformance.compare import OVERRIDES

RECORDING = Path(__file__).parents[1] / "data" / "conformance" / "kube-1.35.jsonl.gz"

MUTANTS: dict[str, dict[str, Any]] = {
    "budgets not decremented": {"victims": {"budgets": {"count": "static"}}},
    "others reprieved before the violating ones": {
        "victims": {"reprieve": ["others", "pdb-violating"]}
    },
    "victims not sorted again": {"victims": {"order": "as-reprieved"}},
    "start time ignored in the importance": {"victims": {"importance": {"remove": ["start-time"]}}},
    "start time ignored in the ranking": {"ranking": {"remove": ["latest-start"]}},
    "violations not counted": {"ranking": {"remove": ["fewest-pdb-violations"]}},
    "equal priority evicted": {
        "victims": {
            "eligible": {
                "replace": [
                    {
                        "id": "lower-priority",
                        "when": "victim.priority <= preemptor.priority",
                        "verdict": "allow",
                    }
                ]
            }
        }
    },
    "terminating victims deleted again": {"effects": {"deleteTerminatingVictims": True}},
    "lower nominations kept": {"effects": {"clearLowerNominations": False}},
    "own nomination left": {"effects": {"onNoCandidate": "leave"}},
    "everybody eligible": {"eligibility": {"remove": ["victims-still-leaving"]}},
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_differs(mutant: str) -> None:
    """One changed rule is seen in the recordings."""
    rule_set = RuleSet.load("kube-1.35", overrides=OVERRIDES | MUTANTS[mutant])
    assert any(r.verdict is Agreement.DIFFER for r in run([RECORDING], rule_set)), mutant
