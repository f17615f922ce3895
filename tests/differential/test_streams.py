"""What is kept from one decision to the next never shows in a decision.

A stream of pods of several kinds is decided on a snapshot that follows every decision and every
other change; each decision is made again on the state put together anew.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject
from policy.cluster.snapshot import Snapshot
from policy.decision.model import OfferedNode
from policy.preemption.decide import decide
from policy.preemption.tally import Tally
from policy.rules.ruleset import RuleSet
from policy.scheduling.effects import changes_of
from policy.scheduling.second_look import look_again
from tests.support.builders import (
    NOW_MS,
    NodeBuilder,
    PodBuilder,
    a_node,
    a_pdb,
    a_pod,
    objects,
    selector,
)

EXAMPLES = int(os.environ.get("POLICY_DIFFERENTIAL_EXAMPLES", "800"))
SAMPLED = {"candidates": {"minPercentage": 20, "minAbsolute": 2}}
FIRST = {"candidates": {"minPercentage": 0, "minAbsolute": 0, "start": "first"}}
FORBID = {"victims": {"forbid": [{"id": "never-violate", "when": "victim.pdbViolating"}]}}
FRESH = {
    "id": "fresh-web",
    "when": "victim.labels['app'] == 'web' && victim.runtimeSeconds < 600",
    "verdict": "deny",
}
OWN = {"id": "own-namespace", "when": "victim.namespace != preemptor.namespace", "verdict": "deny"}
RANKING = [
    {"at": "start", "rule": {"id": f"r{i}", direction: f"candidate.{name}", "why": "it is kept"}}
    for i, (direction, name) in enumerate(
        (
            ("maximize", "reprievedViolations"),
            ("minimize", "pdbViolations"),
            ("minimize", "victimSeconds"),
            ("maximize", "earliestStartOfTopPriority"),
            ("maximize", "cpuMilli"),
            ("minimize", "highestPriority"),
        )
    )
]
"""One criterion for each kind of value: of the victims alone, of the instant, of those who stay."""
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "all": ("kube-1.35", {"candidates": {"minPercentage": 100}}),
    "sampled": ("kube-1.35", SAMPLED),
    "first-clean-node": ("kube-1.27", FIRST),
    "sampled-and-forbidden": ("kube-1.35", {**SAMPLED, **FORBID}),
    "expressions": (
        "kube-1.35",
        {**SAMPLED, "victims": {"eligible": {"insert": [{"at": "start", "rule": FRESH}]}}},
    ),
    "namespaces": (
        "kube-1.35",
        {**SAMPLED, "victims": {"eligible": {"insert": [{"at": "start", "rule": OWN}]}}},
    ),
    "production": ("environments/prod", SAMPLED),
    "ranked": ("kube-1.35", {**SAMPLED, "ranking": {"insert": RANKING}}),
    "1.20": ("kube-1.20", SAMPLED),
    "1.14": ("kube-1.14", {}),
}


def kinds(name: str, kind: int) -> PodBuilder:
    """A pod that waits: kinds differ in priority, size, ports and namespace."""
    pod = a_pod(name).priority((10, 10, 5, 3, 20)[kind]).cpu((2, 3, 2, 1, 4)[kind])
    if kind == 1:
        return pod.labelled(app="web")
    if kind == 3:
        return pod.host_port(80)
    return pod


@st.composite
def clusters(draw: st.DrawFn) -> list[ClusterObject]:
    """Full nodes whose pods differ in priority, size, age, budget and host port."""
    parts: list[NodeBuilder] = []
    for n in range(draw(st.integers(2, 7))):
        running = []
        for i in range(draw(st.integers(0, 5))):
            what = draw(st.integers(0, 255))
            pod = a_pod(f"p{n}-{i}").priority(what % 4).cpu(("500m", 1, 2)[what // 4 % 3])
            pod = pod.started((1, 5, 700, None)[what // 12 % 4])
            pod = pod.labelled(app=("web", "db")[what // 48 % 2])
            running.append(pod.host_port(80) if what % 7 == 0 else pod)
        parts.append(a_node(f"n{n}").cpu(4).running(*running))
    budgets = [
        a_pdb(app).allowing(draw(st.integers(0, 2))).by(selector(app=app)) for app in ("web", "db")
    ]
    waiting = [kinds(f"w{i}", draw(st.integers(0, 4))) for i in range(8)]
    return list(objects(*parts, *budgets, *waiting))


def _edit(snapshot: Snapshot, what: int) -> list[Change]:
    """A change that no decision made: a pod leaves, starts anew, or a budget is used."""
    running = [key for _, key, pod in snapshot.in_order() if pod.spec.node_name]
    if what % 3 == 0 or not running:
        budget = a_pdb("web").allowing(what % 4).by(selector(app="web")).budget
        return [("PodDisruptionBudget", "default/web", budget)]
    key = running[what % len(running)]
    pod = snapshot.pod(key)
    assert pod is not None
    if what % 3 == 1:
        return [("Pod", key, None)]
    again = PodBuilder(pod).started(what).priority(what % 5).pod
    if what % 2:
        again = replace(again, metadata=replace(again.metadata, uid=f"again-{what}"))
    return [("Pod", key, again)]


def _offered(snapshot: Snapshot, seen: dict[str, dict[str, None]], most: int) -> list[OfferedNode]:
    """Every node with the first pods that were ever seen there, some of which are gone.

    seen: uids by node, to which those of the snapshot are added.
    """
    for _, _, pod in snapshot.in_order():
        if pod.spec.node_name:
            seen.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = None
    return [
        OfferedNode(node=node, victims=tuple(uids)[: most + place], pdb_violations=place)
        for place, (node, uids) in enumerate(seen.items())
    ]


@pytest.mark.parametrize("name", RULES)
@settings(
    max_examples=max(1, EXAMPLES // 10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(found=clusters(), order=st.lists(st.integers(0, 7), max_size=12), edits=st.data())
def test_decisions_in_a_row(
    name: str, found: list[ClusterObject], order: list[int], edits: st.DataObject
) -> None:
    """Binds, nominations, evictions, departures and budgets: each decision is the one made anew."""
    base, overrides = RULES[name]
    rules = RuleSet.load(base, overrides)
    tally = Tally()
    snapshot = Snapshot.from_objects(found, now_ms=NOW_MS)
    seen: dict[str, dict[str, None]] = {}
    for step, which in enumerate(order):
        pod = snapshot.pod(f"default/w{which}")
        if pod is None or pod.spec.node_name:
            continue
        now_ms = NOW_MS + step * 1000
        history = tally.added_to({}, rules.history_needs, now_ms=now_ms)
        snapshot = snapshot.at(now_ms, history=history or None)
        offer = None
        if edits.draw(st.booleans(), label="offered"):
            offer = _offered(snapshot, seen, edits.draw(st.integers(0, 3), label="victims"))
        decision = decide(
            snapshot, rules, f"default/w{which}", seed=step, offer=offer, by_class=True
        )
        look_again(snapshot, rules, decision)
        tally.note(decision)
        what = edits.draw(st.integers(0, 60), label="edit")
        changes = list(changes_of(snapshot, decision)) if what % 4 else []
        snapshot = snapshot.apply(changes)
        if what % 2:
            snapshot = snapshot.apply(_edit(snapshot, what))
