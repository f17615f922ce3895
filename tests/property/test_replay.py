"""Law: a decision replays to itself.

Holds for all arguments: equal snapshot, rule set, pod and seed give equal bytes, in this process
and in every other, whatever seeds that process hashes its strings with.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from policy.preemption.decide import decide
from policy.rules import RuleSet
from tests.support.builders import rule_set
from tests.support.clusters import Example, clusters

ROOT = Path(__file__).parents[2]
GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
#: a seed matters to both the sample and the last tie
SEEDED = """{
  "candidates": {"minPercentage": 0, "minAbsolute": 1},
  "ranking": {"replace": [{"id": "by-name", "pick": "seeded"}]}
}"""


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=clusters(), name=st.sampled_from(GENERATIONS), overrides=st.sampled_from(["{}", SEEDED])
)
def test_a_decision_replays_to_itself(case: Example, name: str, overrides: str) -> None:
    """From the same snapshot, from objects read again, and with the rule set read back."""
    rules = rule_set(name, overrides)
    snapshot = case.snapshot()
    first = decide(snapshot, rules, case.pod, seed=case.seed)
    again = decide(snapshot, rules, case.pod, seed=case.seed)
    stored = RuleSet.from_canonical(rules.canonical)
    replayed = Example.from_json(case.to_json()).decided(stored)
    assert [again.canonical, replayed.canonical] == [first.canonical] * 2


DECIDE = """
import sys
from tests.support.builders import rule_set
from tests.support.clusters import Example

for line in sys.stdin:
    name, _, text = line.partition(" ")
    print(Example.from_json(text).decided(rule_set(name, sys.argv[1]), evaluate_all=True).digest)
"""


def digests_elsewhere(questions: list[str], *, hash_seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", DECIDE, SEEDED],
        input="\n".join(questions),
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_another_process_decides_the_same() -> None:
    """Two processes that hash strings differently give the digests that this one gives."""
    cases: list[Example] = []

    @settings(
        max_examples=60, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    @given(case=clusters())
    def collect(case: Example) -> None:
        cases.append(case)

    collect()
    names = [GENERATIONS[i % len(GENERATIONS)] for i in range(len(cases))]
    here = [
        case.decided(rule_set(name, SEEDED), evaluate_all=True).digest
        for name, case in zip(names, cases, strict=True)
    ]
    questions = [f"{name} {case.to_json()}" for name, case in zip(names, cases, strict=True)]
    elsewhere = [digests_elsewhere(questions, hash_seed=seed) for seed in ("1", "2")]
    assert elsewhere == [here, here]
