"""A store in which every table has rows of every sort."""

from __future__ import annotations

from dataclasses import replace

from policy.cluster.objects import (
    ClaimReference,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    GangPolicy,
    GroupMeta,
    GroupSchedulingPolicy,
    Namespace,
    ObjectMeta,
    OwnerReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    PodGroup,
    PodGroupSpec,
    PodGroupTemplate,
    Queue,
    QueueSpec,
    QueueStatus,
    ReplicaSet,
    ReplicationController,
    ResourceClaim,
    ResourceQuota,
    ResourceQuotaSpec,
    SchedulingPodGroup,
    SchedulingPodGroupSpec,
    Service,
    StatefulSet,
    StorageClass,
    Workload,
    WorkloadSpec,
)
from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim
from policy.store import (
    CallAnswer,
    CallMode,
    Cause,
    Origin,
    QueueInfo,
    ServedCall,
    SessionRecord,
    SessionStep,
    Store,
)
from policy.store.observed import NewObservation
from policy.store.record.following import Gap
from policy.store.record.schedulers import SchedulerProfile
from policy.store.record.simulating import NewSimulation
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_budget,
    a_cluster,
    a_decision,
    a_node,
    a_pod,
    a_priority_class,
    a_victim,
    made_on,
    the_changes,
)

A_CALL = ServedCall(
    mode=CallMode.SHADOW,
    form="meta",
    caller="scheduler",
    request_digest="sha256:" + 64 * "c",
    request_bytes=1234,
    answer=CallAnswer.OFFERED,
    failure="no decision was recorded within 1000 ms",
    from_request=("team/urgent",),
    arrived_ms=NOW + 10,
    duration_us=2500,
    waited_us=1200,
)


def other_kinds():
    return [
        Namespace(metadata=ObjectMeta(name="shop", labels={"tier": "gold"})),
        PodGroup(
            metadata=ObjectMeta(name="gang", namespace="jobs"),
            spec=PodGroupSpec(min_member=2, queue="q"),
        ),
        Queue(
            metadata=ObjectMeta(name="q"),
            spec=QueueSpec(weight=3, priority=2, parent="root", reclaimable=False),
            status=QueueStatus(state="Open"),
        ),
        ResourceQuota(
            metadata=ObjectMeta(name="all", namespace="jobs"),
            spec=ResourceQuotaSpec(hard={"cpu": "4"}),
        ),
        SchedulingPodGroup(
            metadata=GroupMeta(name="train", namespace="jobs", generation=2),
            spec=SchedulingPodGroupSpec(
                scheduling_policy=GroupSchedulingPolicy(gang=GangPolicy(min_count=2)),
                priority=10,
                disruption_mode="PodGroup",
            ),
        ),
        Workload(
            metadata=ObjectMeta(name="train", namespace="jobs"),
            spec=WorkloadSpec(pod_group_templates=[PodGroupTemplate(name="workers")]),
        ),
        PersistentVolume(
            metadata=ObjectMeta(name="pv"),
            spec=PersistentVolumeSpec(claim_ref=ClaimReference(namespace="shop", name="pvc")),
        ),
        PersistentVolumeClaim(
            metadata=ObjectMeta(name="pvc", namespace="shop"),
            spec=PersistentVolumeClaimSpec(volume_name="pv", storage_class_name="fast"),
        ),
        CSINode(metadata=ObjectMeta(name="n1")),
        StorageClass(metadata=ObjectMeta(name="fast"), provisioner="csi.example.com"),
        CSIDriver(metadata=ObjectMeta(name="csi.example.com")),
        CSIStorageCapacity(
            metadata=ObjectMeta(name="c1", namespace="kube-system"), storage_class_name="fast"
        ),
        Service(metadata=ObjectMeta(name="web", namespace="shop")),
        ReplicationController(metadata=ObjectMeta(name="old", namespace="shop")),
        ReplicaSet(
            metadata=ObjectMeta(
                name="web-1",
                namespace="shop",
                owner_references=[
                    OwnerReference(
                        api_version="apps/v1", kind="Deployment", name="web", controller=True
                    )
                ],
            )
        ),
        StatefulSet(metadata=ObjectMeta(name="db", namespace="shop")),
        ResourceClaim(metadata=ObjectMeta(name="gpu", namespace="jobs")),
    ]


def a_session(revision: int) -> SessionRecord:
    return SessionRecord(
        digest=f"sha256:{revision:064d}",
        now_ms=NOW,
        snapshot_digest="sha256:" + 64 * "6",
        seed=1,
        engine_version="1",
        bound_count=1,
        evicted_count=1,
        steps=(
            SessionStep(action="allocate", operation="allocate", task="jobs/a", node="n1"),
            SessionStep(action="reclaim", operation="evict", task="jobs/b", detail={"share": 3}),
        ),
        document={"shares": {"q": 1}},
    )


def fill(store: Store, cluster: str = "default") -> None:
    """Imports, decisions with and without effect, nominations made and ended, a session."""
    store.record.import_objects(
        cluster, [*a_cluster(), *other_kinds()], at_ms=NOW, source="dump.json", actor="ann"
    )
    store.record.create_environment(f"prod-{cluster}", cluster, at_ms=NOW + 1, actor="ann")
    activation = {"source": "rules/prod.yaml", "actor": "ann", "rules": BY_HAND}
    for at in (2, 3):
        store.record.activate(f"prod-{cluster}", reason="go live", at_ms=NOW + at, **activation)
    record = {"environment": f"prod-{cluster}", "actor": "bob", "rules": BY_HAND}
    store.record.decision(
        cluster,
        made_on(store, a_decision(clear=("lab/waiting",)), cluster),
        the_changes(clear=("lab/waiting",)),
        expected_revision=1,
        at_ms=NOW + 10,
        queue=QueueInfo(attempt=1, queued_ms=NOW),
        **record,
    )
    again = made_on(store, a_decision(seed=8), cluster)
    store.record.decision(
        cluster,
        again,
        [],
        expected_revision=2,
        at_ms=NOW + 11,
        origin=Origin.EXTENDER,
        served=A_CALL,
        **record,
    )
    store.record.decision(
        cluster,
        made_on(
            store,
            a_decision(a_victim("jobs/batch", node="n2", start_ms=None or NOW), seed=9),
            cluster,
        ),
        [("Pod", "jobs/batch", None), ("Pod", "team/urgent", a_pod("team/urgent", node="n2"))],
        expected_revision=2,
        at_ms=NOW + 12,
        **record,
    )
    store.record.change(
        cluster,
        [
            ("Node", "n1", a_node("n1", cpu="9")),
            ("PodDisruptionBudget", "shop/web", None),
            ("PriorityClass", "p100", a_priority_class("p100", 101)),
            *((type(o).__name__, _key(o), None) for o in other_kinds()),
        ],
        at_ms=NOW + 13,
        source="watch",
        cause=Cause.LIVE,
    )
    again = [a_budget("shop/web"), a_pod("lab/next", nominated="n2"), *other_kinds()]
    store.record.import_objects(cluster, again, at_ms=NOW + 14, source="dump2.json")
    store.record.session(
        cluster,
        made_on(store, a_session(5), cluster),
        [("Pod", "jobs/a", a_pod("jobs/a", node="n1"))],
        expected_revision=5,
        at_ms=NOW + 15,
        environment="",
        actor="carl",
        rules=BY_HAND,
    )


def fill_more(store: Store, cluster: str = "default") -> None:
    """A followed cluster, its scheduler, a simulation: no table is empty; eight entries more."""
    observe(store, cluster)
    profile = SchedulerProfile(profile="default-scheduler", rules=BY_HAND, notices=("no volumes",))
    store.record.set_scheduler(
        f"prod-{cluster}", [profile], source="scheduler.yaml", at_ms=NOW + 17, actor="ann"
    )
    simulated = NewSimulation(
        digest=f"sha256:{cluster}",
        trace="week",
        trace_digest="sha256:week",
        seed=7,
        start_ms=NOW,
        end_ms=NOW + 1000,
        engine_version="1",
        kept_in="",
        options={"restart": "whole"},
        result={"evictions": 3},
    )
    store.record.simulation(cluster, simulated, rules=BY_HAND, at_ms=NOW + 18, actor="carl")
    # A minute later a victim of the first decision still runs.
    store.record.follow(
        cluster,
        [[("Pod", "shop/web-1", a_pod("shop/web-1", node="n1", owner="ReplicaSet/web"))]],
        at_ms=NOW + 60_000,
        source="https://cluster",
        actor="carl",
    )
    contradict_a_session(store, cluster)


def contradict_a_session(store: Store, cluster: str) -> None:
    """A session evicts a pod, and the next import shows that it still runs."""
    session = replace(
        a_session(6),
        steps=(SessionStep(action="preempt", operation="evict", task="jobs/a", node="n1"),),
        bound_count=0,
    )
    store.record.session(
        cluster,
        made_on(store, session, cluster),
        [("Pod", "jobs/a", None)],
        expected_revision=store.state.head_revision(cluster),
        at_ms=NOW + 60_001,
        actor="carl",
        rules=BY_HAND,
    )
    store.record.import_objects(
        cluster, [a_pod("jobs/a", node="n1")], at_ms=NOW + 60_002, source="dump3.json"
    )


def observe(store: Store, cluster: str) -> None:
    """A followed cluster: a gap, a nomination, a marked victim, and what was observed of it."""
    store.record.follow(
        cluster,
        [[("Pod", "lab/hit", a_pod("lab/hit", node="n2", owner="Job/hit"))]],
        at_ms=NOW + 16,
        source="https://cluster",
        actor="carl",
        positions={"Pod": 12},
        gaps=[
            Gap(
                kind="Pod",
                reason="expired",
                since_ms=NOW,
                until_ms=NOW + 16,
                since_version=3,
                until_version=12,
            )
        ],
    )
    seen = Preemption(
        preemptor="team/real",
        preemptor_uid=f"{cluster}-real",
        preemptor_kind="Pod",
        node="n2",
        scheduler="default-scheduler",
        at_ms=NOW + 6_600,
        confidence=Confidence.CERTAIN,
        victims=(
            SeenVictim(
                pod="lab/hit",
                uid=f"{cluster}-hit",
                evidence=(Evidence.EVENT,),
                event_uid=f"{cluster}-event",
                event_version=11,
            ),
        ),
    )
    found = NewObservation(preemption=seen, situation=store.read.situation(cluster, seen))
    store.record.observations(
        cluster, [found], at_ms=NOW + 17, source="https://cluster", actor="carl"
    )


def _key(obj) -> str:
    namespace = obj.metadata.namespace
    return f"{namespace}/{obj.metadata.name}" if namespace else obj.metadata.name
