"""Clusters and decisions by hand, for tests of the store."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from policy.cluster import digest
from policy.cluster.objects import (
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodSpec,
    PodStatus,
    PriorityClass,
    ResourceRequirements,
)
from policy.decision.model import (
    BudgetCount,
    BudgetViolation,
    Candidates,
    Code,
    Decision,
    DecisionTrace,
    Effects,
    NodeStatuses,
    NominationChange,
    Outcome,
    PodCheck,
    RankingStep,
    RuleFired,
    Sampling,
    Status,
    Victim,
)
from policy.store import NotFound, SessionRecord, Store
from policy.store.record.rule_sets import RuleSetText

NOW = 1_790_000_000_000
RULES = '{"kind":"PreemptionRules","name":"by-hand"}'
RULES_DIGEST = "sha256:" + hashlib.sha256(RULES.encode()).hexdigest()
BY_HAND = RuleSetText(digest=RULES_DIGEST, name="by-hand", canonical=RULES)

D = TypeVar("D", Decision, SessionRecord)


def a_node(name: str, *, cpu: str = "8", unschedulable: bool = False) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}),
        spec=NodeSpec(unschedulable=unschedulable),
        status=NodeStatus(allocatable={"cpu": cpu, "memory": "16Gi", "pods": "110"}),
    )


def a_pod(
    key: str,
    *,
    node: str = "",
    nominated: str = "",
    priority: int = 0,
    cpu: str = "1",
    uid: str = "",
    phase: str = "",
    owner: str = "",
    leaving: bool = False,
) -> Pod:
    namespace, _, name = key.rpartition("/")
    kind, _, owner_name = owner.partition("/")
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{name}",
            deletion_timestamp="2026-11-21T00:00:00Z" if leaving else None,
            owner_references=[OwnerReference(kind=kind, name=owner_name, controller=True)]
            if owner
            else None,
        ),
        spec=PodSpec(
            node_name=node,
            priority=priority,
            priority_class_name=f"p{priority}",
            containers=[
                Container(
                    name="main",
                    resources=ResourceRequirements(requests={"cpu": cpu, "memory": "1Gi"}),
                )
            ],
        ),
        status=PodStatus(
            phase=phase or ("Running" if node else "Pending"),
            nominated_node_name=nominated,
            start_time="2026-11-20T00:00:00Z" if node else None,
        ),
    )


def a_budget(key: str) -> PodDisruptionBudget:
    namespace, _, name = key.rpartition("/")
    return PodDisruptionBudget(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(min_available=1),
    )


def a_priority_class(name: str, value: int) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value)


def a_cluster() -> list[Any]:
    """Two full nodes, a budget, and a pod that waits."""
    return [
        a_node("n1"),
        a_node("n2"),
        a_priority_class("p100", 100),
        a_budget("shop/web"),
        a_pod("shop/web-1", node="n1", priority=5, owner="ReplicaSet/web"),
        a_pod("shop/web-2", node="n1", priority=1, owner="ReplicaSet/web"),
        a_pod("jobs/batch", node="n2", priority=0, cpu="8"),
        a_pod("lab/waiting", nominated="n1", priority=10),
        a_pod("team/urgent", priority=100, cpu="4"),
    ]


def a_victim(pod: str, **changes: Any) -> Victim:
    victim = Victim(
        pod=pod,
        uid=f"uid-{pod.rpartition('/')[2]}",
        node="n1",
        priority=1,
        priority_class="p1",
        owner="ReplicaSet/web",
        start_ms=NOW - 3_600_000,
        run_seconds=3600,
        cpu_milli=1000,
        memory_bytes=2**30,
        pdb_violating=False,
        already_terminating=False,
        filter="resources",
        reasons=("Insufficient cpu",),
    )
    return msgspec.structs.replace(victim, **changes)


def a_decision(
    *victims: Victim,
    preemptor: str = "team/urgent",
    snapshot_digest: str = "sha256:" + 64 * "5",
    history: digest.HistoryFigures | None = None,
    now_ms: int = NOW,
    candidates: int = 2,
    seed: int = 7,
    clear: tuple[str, ...] = (),
) -> Decision:
    """A preemption on n1, with other candidates behind it."""
    taken = victims or (a_victim("shop/web-2"), a_victim("shop/web-1", pdb_violating=True))
    pods = tuple(v.pod for v in taken)
    nodes = tuple(f"n{i + 1}" for i in range(candidates))
    statuses = NodeStatuses(
        nodes=("n1", "n2", "n3"),
        index=(0, 0, 1),
        statuses=(
            Status(code=Code.UNSCHEDULABLE, filter="resources", reasons=("Insufficient cpu",)),
            Status(code=Code.UNRESOLVABLE, filter="taints", reasons=("untolerated taint {a: b}",)),
        ),
    )
    violations = sum(v.pdb_violating for v in taken)
    return Decision(
        preemptor=preemptor,
        preemptor_uid="uid-urgent",
        preemptor_priority=100,
        outcome=Outcome.PREEMPT,
        node="n1",
        victims=taken,
        candidates=Candidates(
            nodes=nodes,
            victims=(*pods, *(f"jobs/batch-{i}" for i in range(1, candidates))),
            offsets=(0, *(len(pods) + i for i in range(candidates))),
            pdb_violations=(violations, *(2 for _ in nodes[1:])),
            criteria=("fewest-pdb-violations", "lowest-top-priority"),
            values=(
                (violations, *(2 for _ in nodes[1:])),
                (5, *(5 + i for i in range(1, candidates))),
            ),
            eliminated_by=("", *("fewest-pdb-violations" for _ in nodes[1:])),
            violations=tuple(
                BudgetViolation(
                    node="n1",
                    pod=victim.pod,
                    budget="shop/web",
                    disruptions_allowed=0,
                    allowed_before=0,
                    allowed_after=-1,
                )
                for victim in taken
                if victim.pdb_violating
            ),
        ),
        trace=DecisionTrace(
            fits=False,
            eligible=True,
            rejected=(),
            filter_statuses=statuses,
            rules=(
                RuleFired(
                    section="eligibility",
                    rule="otherwise",
                    verdict="allow",
                    reason="",
                    inputs={"preemptor.preemptionPolicy": "PreemptLowerPriority"},
                ),
            ),
            potential_nodes=("n1", "n2"),
            sampling=Sampling(potential=2, offset=0, wanted=100, examined=2),
            dry_run_statuses=NodeStatuses(nodes=(), index=(), statuses=()),
            ranking=(
                RankingStep(
                    criterion="fewest-pdb-violations",
                    direction="minimize",
                    before=candidates,
                    after=1,
                    best=violations,
                ),
            ),
            decided_by="fewest-pdb-violations" if candidates > 1 else "",
            checks=(
                PodCheck(
                    pod="shop/web-0",
                    priority=9,
                    start_ms=NOW - 7_200_000,
                    pdb_violating=False,
                    budgets=(),
                    reprieved=True,
                    ahead_of="shop/web-1",
                    ahead_by="victim.priority",
                    filter="",
                    reasons=(),
                ),
                PodCheck(
                    pod="shop/web-1",
                    priority=5,
                    start_ms=NOW - 3_600_000,
                    pdb_violating=True,
                    budgets=(
                        BudgetCount(
                            budget="shop/web",
                            disruptions_allowed=0,
                            allowed_before=0,
                            allowed_after=-1,
                        ),
                    ),
                    reprieved=False,
                    ahead_of="",
                    ahead_by="",
                    filter="resources",
                    reasons=("Insufficient cpu",),
                ),
            ),
            message="0/3 nodes are available: 2 Insufficient cpu.",
            scores=(),
        ),
        effects=Effects(
            bind="",
            mark_disrupted=pods,
            evict=pods,
            clear_nominations=clear,
            nomination=NominationChange.SET,
        ),
        rule_set="by-hand",
        rule_set_digest=RULES_DIGEST,
        snapshot_digest=snapshot_digest,
        history=history,
        now_ms=now_ms,
        seed=seed,
        evaluate_all=False,
    )


def the_changes(*victims: str, clear: tuple[str, ...] = ()) -> list[digest.Change]:
    """What `a_decision` does to `a_cluster`."""
    gone = victims or ("shop/web-2", "shop/web-1")
    return [
        *(("Pod", key, None) for key in gone),
        *(("Pod", key, a_pod(key, priority=10)) for key in clear),
        ("Pod", "team/urgent", a_pod("team/urgent", priority=100, cpu="4", nominated="n1")),
    ]


def made_on(store: Store, made: D, cluster: str = "default", *, revision: int | None = None) -> D:
    """The decision or session as if it had been made on a revision, the newest by default."""
    try:
        number = store.state.head_revision(cluster) if revision is None else revision
        state = store.state.changes_since(cluster, number, until=number).state_digest
    except NotFound:
        state = digest.GENESIS
    history = made.history if isinstance(made, Decision) else None
    snapshot = digest.snapshot_digest(state, now_ms=made.now_ms, history=history)
    return replace(made, snapshot_digest=snapshot)
