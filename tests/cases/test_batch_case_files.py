"""Cases of sessions: whose pods they have."""

from __future__ import annotations

from policy.batch import BatchRules
from policy.cases.sessions import read_cases, run_case

CASES = """
- note: pods for the scheduler of the rules are placed, those for another one are not
  nodes: {n1: {cpu: 4}}
  queues: {default: 1}
  gangs:
    ours: {cpu: 1, waiting: 1}
    theirs: {cpu: 1, waiting: 1, scheduler: default-scheduler}
  want:
    mine: {binds: {ours-0: n1}}
"""


def test_a_case_may_name_the_scheduler_of_its_pods() -> None:
    """Rules for a scheduler of another name take part as well as the shipped ones."""
    for extends in ("kube-batch", "volcano"):
        rules = BatchRules.load(
            {
                "apiVersion": "policy/v1",
                "kind": "BatchRules",
                "metadata": {"name": "mine"},
                "extends": extends,
                "spec": {"naming": {"schedulerName": "gangs"}},
            }
        )
        (case,) = read_cases(CASES, "mine.cases.yaml")
        assert run_case(case, rules) == ()
