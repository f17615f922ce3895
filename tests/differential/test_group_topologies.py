"""Members that look around: counts per topology value give what the plain passes give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from policy import RuleSet
from policy.cluster.objects import (
    Affinity,
    AWSElasticBlockStoreSource,
    ClusterObject,
    LabelSelector,
    LabelSelectorRequirement,
    ObjectMeta,
    PersistentVolumeClaimSource,
    PodAffinity,
    PodAffinityTerm,
    Service,
    TopologySpreadConstraint,
    Volume,
    WeightedPodAffinityTerm,
)
from policy.cluster.snapshot import Snapshot
from policy.cluster.workloads import ServiceSpec
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.groups.columns import column_passes
from policy.groups.decide import decide_group_by
from policy.groups.passes import CycleInputs, Passes, PlainPasses
from policy.manifests import from_dicts
from tests.support import volumes
from tests.support.builders import (
    HOSTNAME,
    NOW_MS,
    ZONE,
    Builder,
    NodeBuilder,
    PodBuilder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    objects,
    selector,
    short,
)
from tests.support.groups import a_group, of_group

RULES: dict[str, dict[str, Any]] = {
    "recorded": {},
    "all": {"groups": {"success": "all", "nominations": "placed"}},
    "fixed": {"groups": {"victims": {"reprieveTest": "fixed-nodes"}}},
    "fewer": {"groups": {"victims": {"search": "fewer", "searchPasses": 20}}},
    "seen": {"groups": {"assumedTerms": "current"}},
}
KEYS = (HOSTNAME, ZONE, "rack", "topology.kubernetes.io/zone")
SELECTORS = (
    selector(app="a"),
    selector(app="b"),
    selector(tier="gold"),
    selector(),
    None,
    LabelSelector(
        match_expressions=[LabelSelectorRequirement(key="tier", operator="DoesNotExist")]
    ),
)


def with_spec(pod: PodBuilder, **fields: Any) -> PodBuilder:
    return PodBuilder(replace(pod.pod, spec=replace(pod.pod.spec, **fields)))


DISK, OWN, UNBOUND = (
    Volume(name=name, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=name))
    for name in ("data", "own", "unbound")
)
ELASTIC = Volume(
    name="elastic", aws_elastic_block_store=AWSElasticBlockStoreSource(volume_id="vol-1")
)
FEATURES = (
    "affinity",
    "spread",
    "volumes",
    "terms of others",
    "zones",
    "indexes",
    "services",
    "other namespace",
    "waiting",
    "terminating",
)


class Draw:
    """One cluster: full nodes, units below the group, and members that look around."""

    def __init__(self, seed: int) -> None:
        # Drawn evenly: a search for small examples seldom reaches clusters in which much happens.
        self.random = Random(seed)
        self.features = set(self.random.sample(FEATURES, self.random.randint(1, 4)))
        self.features.add(self.any_of("affinity", "spread", "terms of others"))
        #: a few, so that what wants and what is wanted often meet
        self.keys = self.random.sample(KEYS, 2)

    def any_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def often(self, chance: float) -> bool:
        return self.random.random() < chance

    def term(self) -> PodAffinityTerm:
        return PodAffinityTerm(
            topology_key=self.any_of(*self.keys),
            label_selector=self.any_of(*SELECTORS[:2], *SELECTORS),
            namespaces=self.any_of(None, None, None, None, ["shop", "default"], ["shop"]),
            namespace_selector=self.any_of(None, None, None, None, selector(), selector(team="a")),
        )

    def weighted(self) -> WeightedPodAffinityTerm:
        weight = self.any_of(1, 5, 100)
        return WeightedPodAffinityTerm(weight=weight, pod_affinity_term=self.term())

    def affinity(self) -> Affinity:
        """Terms of one or two of the four sorts."""
        sorts = self.random.sample(["near", "far", "nearer", "farther"], self.any_of(1, 1, 2))

        def some(sort: str, of: Callable[[], Any]) -> list[Any] | None:
            return [of() for _ in range(self.any_of(1, 1, 2))] if sort in sorts else None

        return Affinity(
            pod_affinity=PodAffinity(
                required=some("near", self.term), preferred=some("nearer", self.weighted)
            ),
            pod_anti_affinity=PodAffinity(
                required=some("far", self.term), preferred=some("farther", self.weighted)
            ),
        )

    def constraint(self) -> TopologySpreadConstraint:
        return TopologySpreadConstraint(
            max_skew=self.any_of(1, 1, 2),
            topology_key=self.any_of(*self.keys),
            when_unsatisfiable=self.any_of("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"),
            label_selector=self.any_of(*SELECTORS[:2], *SELECTORS),
            min_domains=self.any_of(None, None, None, 2, 4),
            node_affinity_policy=self.any_of(None, "Honor", "Ignore"),
            node_taints_policy=self.any_of(None, "Honor", "Ignore"),
            match_label_keys=self.any_of(None, None, None, ["tier"], ["index"], ["absent"]),
        )

    def labelled(self, pod: PodBuilder) -> PodBuilder:
        pod = pod.labelled(app=self.any_of("a", "a", "b"))
        return pod.labelled(tier="gold") if self.often(0.3) else pod

    def node(self, n: int) -> NodeBuilder:
        node = a_node(f"n{n}").cpu(self.any_of(2, 4, 6)).memory("8Gi")
        for key in KEYS[1:]:
            if not self.often(0.1):
                node = node.labelled({key: self.any_of("x", "y", "z")})
        if self.often(0.1):
            node = node.tainted("dedicated")
        return node.running(*(self.running(f"p{n}-{p}") for p in range(self.any_of(1, 2, 3))))

    def running(self, name: str) -> PodBuilder:
        pod = self.labelled(a_pod(name)).cpu(self.any_of(1, 2))
        pod = pod.priority(self.any_of(0, 0, 5, 20)).started(self.any_of(1, 2, 3))
        if "terms of others" in self.features and self.often(0.4):
            pod = with_spec(pod, affinity=self.affinity())
        if "volumes" in self.features:
            pod = with_spec(pod, volumes=self.any_of(None, [DISK], [OWN], [ELASTIC]))
        if "other namespace" in self.features and self.often(0.3):
            pod = pod.in_namespace("shop")
        if "terminating" in self.features and self.often(0.3):
            pod = pod.terminating()
        group = self.any_of("", "", "units", "loose")
        return of_group(pod, group) if group else pod

    def members(self) -> list[PodBuilder]:
        """Members of one or two kinds."""
        kinds = [self.kind() for _ in range(self.any_of(1, 1, 2))]
        members = []
        for m in range(self.any_of(1, 2, 3, 4, 5, 6)):
            pod = self.labelled(a_pod(f"m{m}")).cpu(self.any_of(1, 1, 2, 3))
            pod = pod.priority(self.any_of(1, 10))
            if "indexes" in self.features:
                pod = pod.labelled(index=str(m))
            if self.often(0.15):
                pod = pod.nominated_to(f"n{self.any_of(0, 1, 2, 3)}")
            members.append(of_group(with_spec(pod, **self.any_of(*kinds)), "own"))
        return members

    def kind(self) -> dict[str, Any]:
        kind: dict[str, Any] = {}
        if "affinity" in self.features and self.often(0.8):
            kind["affinity"] = self.affinity()
        if "spread" in self.features and self.often(0.8):
            of = [self.constraint() for _ in range(self.any_of(1, 2, 3))]
            kind["topology_spread_constraints"] = of
        if "volumes" in self.features:
            kind["volumes"] = self.any_of(None, [DISK], [OWN, DISK], [UNBOUND], [ELASTIC])
        if "zones" in self.features:
            kind["node_selector"] = {ZONE: self.any_of("x", "y")}
        return kind

    def storage(self) -> list[ClusterObject]:
        return from_dicts(
            [
                *(
                    volumes.claim(c, f"pv-{c}", metadata={"namespace": "default"})
                    for c in ("data", "own")
                ),
                *(volumes.volume(f"pv-{c}") for c in ("data", "own")),
                volumes.claim("unbound", metadata={"namespace": "default"}),
                volumes.storage_class("waiting", provisioner=volumes.DRIVER),
                *(volumes.csi_node(f"n{n}", self.any_of(0, 1, 1, 2)) for n in range(6)),
            ]
        )

    def cluster(self) -> Snapshot:
        members = self.members()
        parts: list[Builder] = [*(self.node(n) for n in range(self.any_of(2, 3, 4, 6))), *members]
        if "services" in self.features:
            meta = ObjectMeta(name="service", namespace="default")
            parts.append(Service(metadata=meta, spec=ServiceSpec(selector={"app": "a"})))
        if "waiting" in self.features:
            pod = self.labelled(a_pod("waits")).cpu(1).priority(self.any_of(5, 20))
            parts.append(pod.nominated_to("n0"))
        if "volumes" in self.features:
            parts += self.storage()
        return Snapshot.from_objects(
            objects(
                *parts,
                a_namespace("default", team="a"),
                a_namespace("shop", team="b"),
                a_pdb("budget").selecting(app="a").allowing(self.any_of(0, 1, 2)),
                a_group("own", priority=10, least=self.random.randint(1, len(members))),
                a_group("units", priority=self.any_of(0, 5, 12), mode="PodGroup"),
                a_group("loose", priority=100),
            ),
            now_ms=NOW_MS,
        )


def decided(way: Callable[[CycleInputs], Passes], snapshot: Snapshot, how: str) -> GroupDecision:
    rules = RuleSet.load("kube-1.36-groups", overrides=RULES[how] or None)
    return decide_group_by(way, snapshot, rules, "default/own")


@pytest.mark.parametrize("how", RULES)
def test_the_same_decision_both_ways(how: str) -> None:
    made = Counter[str]()

    def columns(task: CycleInputs) -> Passes:
        found = column_passes(task)
        made["columns" if found is not None else "plain"] += 1
        return found or PlainPasses(task)

    outcomes = Counter[str]()
    for seed in range(CLUSTERS):
        snapshot = Draw(seed).cluster()
        fast, plain = (decided(way, snapshot, how) for way in (columns, PlainPasses))
        assert (seed, fast.canonical) == (seed, plain.canonical)
        outcomes[fast.outcome.value] += 1
    # What is compared has to happen.
    assert made["plain"] < CLUSTERS // 10
    assert min(outcomes[o.value] for o in HAPPENING) > CLUSTERS // 10


CLUSTERS = 100
HAPPENING = (GroupOutcome.SCHEDULED, GroupOutcome.PREEMPTING, GroupOutcome.UNSCHEDULABLE)


def placed(*parts: Builder) -> dict[str, str]:
    """Node by member; both ways, the columns among them."""
    snapshot = Snapshot.from_objects(objects(*parts), now_ms=NOW_MS)

    def columns(task: CycleInputs) -> Passes:
        found = column_passes(task)
        assert found is not None
        return found

    fast, plain = (decided(way, snapshot, "recorded") for way in (columns, PlainPasses))
    assert fast.canonical == plain.canonical
    return {short(pod): node for pod, node in fast.effects.bind.items()}


def a_member(name: str, **spec: Any) -> PodBuilder:
    pod = a_pod(name).labelled(app=name).cpu(1).memory("1Gi").priority(1)
    return of_group(with_spec(pod, **spec), "own")


def drawing(app: str) -> Affinity:
    term = PodAffinityTerm(topology_key=ZONE, label_selector=selector(app=app))
    weighted = WeightedPodAffinityTerm(weight=100, pod_affinity_term=term)
    return Affinity(pod_affinity=PodAffinity(preferred=[weighted]))


def test_two_members_share_a_volume_that_counts_once_for_a_third() -> None:
    node = a_node("n0").cpu(8).memory("8Gi")
    storage = from_dicts(
        [
            *(
                volumes.claim(c, f"pv-{c}", metadata={"namespace": "default"})
                for c in ("data", "own")
            ),
            *(volumes.volume(f"pv-{c}") for c in ("data", "own")),
            volumes.csi_node("n0", 2),
        ]
    )
    members = [a_member("a", volumes=[DISK]), a_member("b", volumes=[DISK])]
    members.append(a_member("c", volumes=[OWN]))
    found = placed(node, *members, *storage, a_group("own", least=3))
    assert found == {"a": "n0", "b": "n0", "c": "n0"}


@pytest.mark.parametrize(("before", "node"), [(True, "n0"), (False, "n1")])
def test_a_placed_member_draws_others_where_terms_were_before(before: bool, node: str) -> None:
    """The list of nodes with affinity is not updated while a group is placed."""
    # n1 is the emptier one for `b`, which `a` draws to its own.
    there = a_pod("there").cpu("100m")
    terms = with_spec(there, affinity=drawing("none"))
    elsewhere = with_spec(a_pod("elsewhere").cpu(1), affinity=drawing("none"))
    parts = (
        a_node("n0").labelled({ZONE: "x"}).cpu(8).memory("8Gi").running(terms if before else there),
        a_node("n1").labelled({ZONE: "y"}).cpu(8).memory("8Gi"),
        a_node("n2").labelled({ZONE: "z"}).cpu(1).memory("8Gi").running(elsewhere),
        a_member("a", affinity=drawing("b"), node_selector={ZONE: "x"}),
        a_member("b"),
        a_group("own", least=2),
    )
    assert placed(*parts) == {"a": "n0", "b": node}
