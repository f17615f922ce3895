"""Whatever a cluster or a configuration holds, a session comes to an end and says what it met.

The list of the original's crashes (a job that only a budget describes, more taken than there is)
is here, and everything else that nobody would write on purpose.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from policy.batch import BatchRules, SessionResult, run_session
from policy.batch.nodes import CrashKind
from policy.batch.notes import Oddity
from policy.cluster.objects import (
    ClusterObject,
    Node,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodGroup,
    PodSpec,
    PodStatus,
    Queue,
    QueueSpec,
)
from policy.cluster.snapshot import Snapshot
from policy.manifests import read_dicts
from tests.support.batch import a_class, a_gang, a_node, a_pod, a_queue, cluster

SAMPLE = BatchRules.load("kube-batch-sample")


def noted(result: SessionResult) -> set[tuple[Oddity, str, str]]:
    return {(n.oddity, n.subject, n.detail) for n in result.notes}


# --- where the original crashes ----------------------------------------------------------------


def test_a_job_that_only_a_budget_describes_is_no_crash() -> None:
    """The original reads the missing group of a job that is not ready; ours notes it."""
    owner = OwnerReference(uid="set", controller=True)
    meta = ObjectMeta(name="pdb", namespace="default", owner_references=[owner])
    spec = PodDisruptionBudgetSpec(min_available=2)
    budget = PodDisruptionBudget(metadata=meta, spec=spec)
    result = run_session(cluster(a_node("n1"), a_queue("default"), budget), SAMPLE)
    assert [(c.kind, c.subject) for c in result.crashes] == [(CrashKind.NO_GROUP, "set")]


def test_victims_that_are_a_little_short_are_no_crash() -> None:
    """Three claimants that each take a victim 9m too small promise 27m more than is released."""
    snapshot = cluster(
        a_node("n1", cpu=3),
        a_queue("default"),
        a_class("high", 9),
        *(a_gang(f"low{i}", on=["n1"], cpu="991m", memory="1Gi") for i in range(3)),
        *(a_gang(f"high{i}", klass="high", waiting=1, cpu=1, memory="1Gi") for i in range(3)),
    )
    result = run_session(snapshot, SAMPLE)
    assert len(result.pipelined) == 3
    assert {(c.kind, c.node, c.of) for c in result.crashes} == {
        (CrashKind.SUBTRACTION, "n1", "releasing")
    }


def test_an_unknown_action_is_an_error_before_the_session() -> None:
    """Nothing starts with an action that nobody knows."""
    from policy.rules.problems import RulesError

    with pytest.raises(RulesError, match="unknown action `enqueu`"):
        BatchRules.load({"actions": "allocate, enqueu", "tiers": []})


# --- queues ------------------------------------------------------------------------------------


def test_a_missing_queue_is_told() -> None:
    """A job whose queue does not exist is left out, and the note names queue and job."""
    snapshot = cluster(a_node("n1"), a_queue("q"), a_gang("j", queue="typo", waiting=1))
    result = run_session(snapshot, SAMPLE)
    assert noted(result) == {(Oddity.QUEUE_MISSING, "default/j", "typo")}
    assert dict(result.binds) == {}


@pytest.mark.parametrize("weights", [(-1, 1), (-3, 1), (0, 0), (-1, -1), (2147483647, -2147483648)])
def test_weights_of_any_sign_come_to_an_end(weights: tuple[int, int]) -> None:
    """Zero and negative weights divide the cluster somehow, and never without end."""
    snapshot = cluster(
        a_node("n1", cpu=4, memory="4Gi"),
        a_queue("q1", weights[0]),
        a_queue("q2", weights[1]),
        a_gang("a", queue="q1", on=["n1"], waiting=2, cpu=1, memory="1Gi"),
        a_gang("b", queue="q2", on=["n1"], waiting=2, cpu=1, memory="1Gi"),
    )
    for name in BatchRules.names():
        rules = BatchRules.load(name)
        result = run_session(snapshot, rules)
        # Volcano has a queue `default` besides, and its weights begin at 1.
        found = {q.weight for q in result.open.queues.values()}
        assert found == set(weights) or rules.semantics == "volcano"


def test_queues_that_name_each_other_are_queues_like_others() -> None:
    """A cycle of parents (hierarchical queues of Volcano) changes nothing: queues are flat here."""
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"weight": 1, "parent": parent},
        }
        for name, parent in (("a", "b"), ("b", "a"), ("c", "c"))
    ]
    objects = [*read_dicts(items).objects, a_node("n1"), *a_gang("j", queue="a", waiting=1)]
    result = run_session(Snapshot.from_objects(objects, now_ms=0), SAMPLE)
    assert dict(result.binds) == {"default/j-0": "n1"}


@pytest.mark.parametrize(
    "version",
    [
        "scheduling.incubator.k8s.io/v1alpha1",
        "scheduling.sigs.dev/v1alpha2",
        "scheduling.volcano.sh/v1beta1",
    ],
)
def test_groups_and_queues_of_every_api_group_are_read(version: str) -> None:
    """PodGroup and Queue of kube-batch's two groups and of Volcano form the same session."""
    items: list[dict[str, Any]] = [
        {"apiVersion": version, "kind": "Queue", "metadata": {"name": "q"}, "spec": {"weight": 1}},
        {
            "apiVersion": version,
            "kind": "PodGroup",
            "metadata": {"name": "j", "namespace": "default"},
            "spec": {"minMember": 1, "queue": "q"},
        },
    ]
    objects = [*read_dicts(items).objects, a_node("n1"), a_pod("p", group="j")]
    result = run_session(Snapshot.from_objects(objects, now_ms=0), SAMPLE)
    assert dict(result.binds) == {"default/p": "n1"}


# --- groups and pods ---------------------------------------------------------------------------


def test_a_group_without_pods_is_ready_or_not_and_nothing_else() -> None:
    """Groups without pods take part in every action and are written a phase."""
    snapshot = cluster(
        a_node("n1"), a_queue("default"), a_gang("empty", minimum=2), a_gang("none", minimum=0)
    )
    for name in BatchRules.names():
        rules = BatchRules.load(name)
        result = run_session(snapshot, rules)
        phases = {key: group.phase for key, group in result.pod_groups.items()}
        of_volcano = rules.semantics == "volcano"
        written = ("Inqueue", "Completed") if of_volcano else ("Pending", "Running")
        assert phases == dict(zip(("default/empty", "default/none"), written, strict=True))
        assert {step.task for step in result.steps} <= {""}  # groups enter the queue, no task moves


def test_a_pod_of_a_missing_group_is_told() -> None:
    """Its job is left out; the pod keeps its place and cannot be a victim."""
    snapshot = cluster(a_node("n1"), a_queue("default"), a_pod("p", group="gone", node="n1"))
    result = run_session(snapshot, SAMPLE)
    assert noted(result) == {(Oddity.GROUP_MISSING, "default/gone", "")}


def test_a_budget_without_controller_or_number_is_told() -> None:
    """Budgets describe jobs by their controller; those that cannot are notes."""
    owner = OwnerReference(uid="set", controller=True)
    loose = PodDisruptionBudget(metadata=ObjectMeta(name="loose", namespace="default"))
    vague = PodDisruptionBudget(
        metadata=ObjectMeta(name="vague", namespace="default", owner_references=[owner]),
        spec=PodDisruptionBudgetSpec(min_available="50%"),
    )
    result = run_session(cluster(a_node("n1"), a_queue("default"), loose, vague), SAMPLE)
    assert noted(result) == {
        (Oddity.BUDGET_WITHOUT_CONTROLLER, "default/loose", ""),
        (Oddity.BUDGET_WITHOUT_NUMBER, "default/vague", "50%"),
    }


def test_pods_on_full_missing_and_negative_nodes_are_told() -> None:
    """What cannot be accounted for is left out of the sums and named."""
    snapshot = cluster(
        a_node("full", cpu=1),
        a_node("negative", cpu=-1),
        a_queue("default"),
        a_gang("j", on=["full", "full", "negative", "unknown"], cpu=1),
    )
    result = run_session(snapshot, SAMPLE)
    assert noted(result) == {
        (Oddity.NODE_FULL, "default/j-1", "full"),
        (Oddity.NODE_TOO_SMALL, "negative", ""),
        (Oddity.NODE_MISSING, "default/j-2", "negative"),
        (Oddity.NODE_MISSING, "default/j-3", "unknown"),
    }


def test_two_pods_with_one_uid_are_two_tasks() -> None:
    """Copied manifests repeat uids, and hand-written ones have none: no pod gets lost by it."""
    one, two = a_pod("one"), a_pod("two")
    two = replace(two, metadata=replace(two.metadata, uid=one.metadata.uid))
    bare = [replace(p, metadata=replace(p.metadata, uid="")) for p in (a_pod("x"), a_pod("y"))]
    result = run_session(cluster(a_node("n1"), a_queue("default"), one, two, bare), SAMPLE)
    assert result.binds.keys() == {f"default/{n}" for n in ("one", "two", "x", "y")}
    assert {n.oddity for n in result.notes} == {Oddity.SAME_UID}


def nothing_but_names() -> list[ClusterObject]:
    """Objects that carry a name and no more."""
    meta = ObjectMeta(name="bare", namespace="default")
    return [
        Node(metadata=meta),
        Queue(metadata=meta),
        Queue(metadata=ObjectMeta(name="default"), spec=QueueSpec(weight=1)),
        PodGroup(metadata=meta),
        Pod(metadata=meta),
        Pod(
            metadata=ObjectMeta(name="ours", namespace="default"),
            spec=PodSpec(scheduler_name="kube-batch"),
            status=PodStatus(phase=""),
        ),
    ]


@pytest.mark.parametrize("name", BatchRules.names())
@pytest.mark.parametrize("objects", [[], nothing_but_names()], ids=["empty", "names"])
def test_an_empty_cluster_is_a_session(name: str, objects: list[ClusterObject]) -> None:
    """No nodes, no queues, no fields: a session with nothing to do."""
    result = run_session(Snapshot.from_objects(objects, now_ms=0), BatchRules.load(name))
    assert (dict(result.binds), result.evicts) == ({}, ())
    assert result.digest


def test_a_session_without_plugins_places_by_age() -> None:
    """Without any plugin every node takes every task that fits, and gangs do not matter."""
    rules = BatchRules.load({"actions": "reclaim, allocate, backfill, preempt", "tiers": []})
    snapshot = cluster(
        a_node("n1", cpu=2), a_queue("default"), a_gang("j", minimum=5, waiting=3, cpu=1)
    )
    result = run_session(snapshot, rules)
    assert dict(result.binds) == {"default/j-0": "n1", "default/j-1": "n1"}
    assert result.open.queues == {}
