"""Variables that people asked for: they decide, they are recorded, and a replay reads the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.acceptance.commands import Policy, a_node, a_pod
from tests.acceptance.test_answers import START, Cluster, a_budget, cluster, owned

__all__ = ["cluster"]  # the fixture

RULES = """\
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: mine}
extends: kube-1.36
spec:
  victims:
    eligible:
      insert:
        - at: start
          rule:
            id: budget-rests
            when: "!victim.terminating && victim.budgetLastEvictedSeconds < 3600"
            verdict: deny
            reason: the budget was hit within the hour
            why: one disruption an hour for each budget
        - at: start
          rule:
            id: has-no-other-place
            when: victim.priority > 0 && !victim.fitsElsewhere
            verdict: deny
            reason: it would fit on no other node
            why: the harm should be short
  ranking:
    insert:
      - at: start
        rule: {id: kept, maximize: candidate.reprievedViolations, why: budgets are kept}
"""
CASES = """\
- note: a budget that was hit 59 minutes ago rests, for all of its pods
  nodes: {n1: {cpu: 1}, n2: {cpu: 1}}
  pods:
    web-1: {node: n1, priority: 0, cpu: 1, labels: {app: web}, owner: ReplicaSet/web}
    canary: {node: n2, priority: 0, cpu: 1, labels: {app: web}, owner: ReplicaSet/canary}
    urgent: {priority: 10, cpu: 1}
  pdbs: {web: {selector: {app: web}, allowed: 5}}
  history: {secondsSinceLastPreempted: {default/ReplicaSet/web: 3540}}
  want: {node: null, denied: {web-1: budget-rests, canary: budget-rests}}
- note: a pod stays that has no other place, one that has leaves
  nodes: {n1: {cpu: 1}, n2: {cpu: 1}, n3: {cpu: 1, taints: ['team=red:NoSchedule']}}
  pods:
    a: {node: n1, priority: 1, cpu: 1}
    b: {node: n2, priority: 2, cpu: 1, tolerations: ['team=red:NoSchedule']}
    urgent: {priority: 10, cpu: 1}
  want: {node: n2, victims: [b], denied: {a: has-no-other-place}}
- note: of two nodes the one is taken that keeps a budget, here with its pods as manifests
  nodes: {n1: {cpu: 2}, n2: {cpu: 2}}
  pods:
    a: {node: n1, priority: 0, cpu: 1}
    b: {node: n1, priority: 0, cpu: 1}
    c: {node: n2, priority: 0, cpu: 1}
    urgent: {priority: 10, cpu: 1}
  manifests:
    - apiVersion: v1
      kind: Pod
      metadata: {name: d, namespace: default, labels: {app: db}}
      spec:
        nodeName: n2
        priority: 0
        containers: [{name: main, resources: {requests: {cpu: 1}}}]
  pdbs: {db: {selector: {app: db}, allowed: 0}}
  want: {node: n2, victims: [c], decided-by: kept}
"""


def of_web(name: str, node: str) -> dict[str, Any]:
    """A pod that the budget selects."""
    pod = owned(a_pod(f"shop/{name}", node, 0, 4, START), "ReplicaSet/web")
    pod["metadata"]["labels"] = {"app": "web"}
    return pod


def test_variables_decide_are_recorded_and_replayed(
    policy: Policy, cluster: Cluster, tmp_path: Path
) -> None:
    """Cases hold; the second eviction of a budget within an hour is denied; replays are equal."""
    rules = tmp_path / "mine.yaml"
    rules.write_text(RULES)
    (tmp_path / "mine.cases.yaml").write_text(CASES)
    done = policy("rules", "test", rules)
    assert (done.status, done.err) == (0, "3 cases hold\n")
    database = cluster(
        a_node("n1"),
        a_node("n2"),
        of_web("web-1", "n1"),
        of_web("web-2", "n2"),
        a_budget("web", allowed=2, app="web"),
        a_pod("shop/one", "", 100, 4),
        a_pod("shop/two", "", 90, 4),
    )

    def preempts(pod: str, now: str) -> str:
        done = policy("preempt", pod, "--rules", rules, "--db", database, "--now", now)
        assert done.status == 0, done.err
        return done.out.splitlines()[0]

    assert preempts("shop/one", "2026-11-21T10:00:00Z") == (
        "shop/one (priority 100) preempts 1 pod on n1"
    )
    denied = preempts("shop/two", "2026-11-21T10:59:59Z")
    assert "budget-rests" in policy("explain", "2", "--db", database).out
    allowed = preempts("shop/two", "2026-11-21T11:00:00Z")
    assert [denied, allowed] == [
        "shop/two (priority 90) fits nowhere, and no preemption that is allowed would help",
        "shop/two (priority 90) preempts 1 pod on n2",
    ]
    replayed = policy("replay", "--all", "--db", database)
    assert (replayed.status, replayed.err) == (
        0,
        "3 decisions replayed: 3 equal, 0 different, 0 incomplete\n",
    )
