"""Section 8 of the specification: what follows from a decision?"""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.objects import Condition, Pod
from policy.decision.model import Effects, NominationChange
from policy.preemption.decide import decide
from policy.scheduling.effects import changes_of
from tests.support.builders import (
    NOW,
    NOW_MS,
    a_node,
    a_pdb,
    a_pod,
    decided,
    result,
    rule_set,
    snapshot,
)

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
HIGH = a_pod("high").priority(10).cpu(2)
TWO = (
    a_node("n1")
    .cpu(2)
    .running(a_pod("a").priority(1).cpu(1), a_pod("b").priority(2).cpu(1).labelled(app="web"))
)
LEAVING = a_node("n1").cpu(2).running(a_pod("a").priority(1).cpu(2).terminating())
HOPELESS = a_node("n1").cpu(2).running(a_pod("a").priority(99).cpu(2))
CORDONED = a_node("n1").cpu(2).cordoned()


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_preemption(name: str) -> None:
    """Victims are deleted (and marked first, from 1.27 on) and the pod is nominated."""
    evicted = ("default/b", "default/a")
    assert decided(TWO, HIGH, rules=name).effects == Effects(
        bind="",
        mark_disrupted=() if name in {"kube-1.14", "kube-1.20"} else evicted,
        evict=evicted,
        clear_nominations=(),
        nomination=NominationChange.SET,
    )


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("kube-1.14", ["b", "a"]),
        ("kube-1.28", ["b", "a"]),
        ("kube-1.35", ["b", "a"]),
    ],
)
def test_the_order_of_deletion_without_budgets(name: str, wanted: list[str]) -> None:
    """Victims go in the order of importance."""
    assert result(decided(TWO, HIGH, rules=name)) == ("preempt", "n1", wanted)


@pytest.mark.parametrize(("name", "wanted"), [("kube-1.28", ["a", "b"]), ("kube-1.35", ["b", "a"])])
def test_the_order_of_deletion_with_budgets(name: str, wanted: list[str]) -> None:
    """Up to 1.30 violating victims come first; later all are listed by importance again."""
    budget = a_pdb("p").selecting(tier="low")
    node = (
        a_node("n1")
        .cpu(2)
        .running(a_pod("a").priority(1).cpu(1).labelled(tier="low"), a_pod("b").priority(2).cpu(1))
    )
    assert result(decided(node, budget, HIGH, rules=name)) == ("preempt", "n1", wanted)


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_victim_that_is_leaving_already(name: str) -> None:
    """It is deleted a second time up to 1.32; later it is neither deleted nor marked."""
    effects = decided(LEAVING, HIGH, rules=name).effects
    again = () if name == "kube-1.35" else ("default/a",)
    marked = again if name in {"kube-1.27", "kube-1.28"} else ()
    assert (effects.evict, effects.mark_disrupted) == (again, marked)


@pytest.mark.parametrize("name", GENERATIONS)
def test_lower_nominations_on_the_chosen_node_are_cleared(name: str) -> None:
    """Pods of lower priority lose their nomination there, in order of name; no others do."""
    waiting = (
        a_pod("w2").priority(3).nominated_to("n1"),
        a_pod("w1").priority(9).nominated_to("n1"),
        a_pod("w0").priority(1).nominated_to("n1").in_namespace("shop"),
        a_pod("equal").priority(10).nominated_to("n1"),
        a_pod("elsewhere").priority(1).nominated_to("n2"),
        a_pod("other-scheduler").priority(1).nominated_to("n1").scheduled_by("other"),
    )
    effects = decided(TWO, a_node("n2").cpu(1), *waiting, HIGH, rules=name).effects
    assert effects.clear_nominations == ("default/w1", "default/w2", "shop/w0")


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_pod_that_fits_is_bound(name: str) -> None:
    """Nothing is evicted where a node has room."""
    decision = decided(TWO, a_node("n2").cpu(2), HIGH, rules=name)
    assert (result(decision), decision.effects.bind) == (("bind", "n2", []), "n2")


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_pod_that_is_not_eligible_keeps_its_nomination(name: str) -> None:
    """It waits for what was promised to it."""
    low = a_pod("low").priority(1).cpu(2).terminating_by_preemption()
    node = a_node("n1").cpu(2).running(low)
    decision = decided(node, HIGH.nominated_to("n1"), rules=name)
    assert (decision.outcome.value, decision.effects.nomination.value) == ("not-eligible", "leave")


@pytest.mark.parametrize(
    ("name", "helpless", "no_potential"),
    [
        ("kube-1.14", "leave", "clear"),
        ("kube-1.20", "leave", "leave"),
        ("kube-1.27", "clear", "clear"),
        ("kube-1.28", "clear", "clear"),
        ("kube-1.35", "clear", "clear"),
    ],
)
def test_a_pod_without_candidate(name: str, helpless: str, no_potential: str) -> None:
    """What becomes of its nomination differs, also by whether there was a potential node."""
    found = [
        decided(node, HIGH.nominated_to("n9"), rules=name).effects.nomination.value
        for node in (HOPELESS, CORDONED)
    ]
    assert found == [helpless, no_potential]


def test_what_a_preemption_writes() -> None:
    """Victims get condition and deletion time, lower nominations go, the preemptor gets its own."""
    low = a_pod("low").priority(1).cpu(2).started(5)
    low_grace = replace(low.pod, spec=replace(low.pod.spec, termination_grace_period_seconds=90))
    waits = a_pod("waits").priority(2).nominated_to("n1")
    cluster = snapshot(
        a_node("n1").cpu(2),
        replace(low_grace, spec=replace(low_grace.spec, node_name="n1")),
        waits,
        HIGH,
    )
    decision = decide(cluster, rule_set("kube-1.35"), "default/high")
    after = {key: obj for _, key, obj in changes_of(cluster, decision) if isinstance(obj, Pod)}
    found = {
        key: (
            pod.metadata.deletion_timestamp,
            pod.status.nominated_node_name,
            [(c.type, c.status, c.reason) for c in pod.status.conditions or ()],
        )
        for key, pod in after.items()
    }
    gone = times.to_text(times.from_datetime(NOW + timedelta(seconds=90)))
    assert found == {
        "default/low": (gone, "", [("DisruptionTarget", "True", "PreemptionByScheduler")]),
        "default/waits": (None, "", []),
        "default/high": (None, "n1", [("PodScheduled", "False", "Unschedulable")]),
    }


def test_a_condition_keeps_the_time_of_its_last_transition() -> None:
    """Said again it keeps its time, with another status it gets the time of the decision."""
    before, now = times.to_text(times.from_datetime(NOW) - 60_000), times.to_text(NOW_MS)
    told = Condition(type="PodScheduled", status="False", last_transition_time=before)
    other = Condition(type="Ready", status="False", last_transition_time=before)
    waits = replace(HIGH.pod, status=replace(HIGH.pod.status, conditions=[other, told]))
    found = []
    for node in (HOPELESS, a_node("n1").cpu(2)):
        cluster = snapshot(node, waits)
        changes = changes_of(cluster, decide(cluster, rule_set("kube-1.35"), "default/high"))
        pods = {key: obj for _, key, obj in changes if isinstance(obj, Pod)}
        conditions = pods["default/high"].status.conditions or ()
        found.append([(c.type, c.status, c.last_transition_time) for c in conditions])
    assert found == [
        [("Ready", "False", before), ("PodScheduled", "False", before)],
        [("Ready", "False", before), ("PodScheduled", "True", now)],
    ]


def test_a_negative_grace_period_is_one_second() -> None:
    """As the API server's graceful deletion treats it; the longest one still ends in a time."""
    gone = []
    for grace in (-5, times.LONGEST_GRACE_SECONDS):
        low = a_pod("low").priority(1).cpu(2).started(5).on("n1").pod
        spec = replace(low.spec, termination_grace_period_seconds=grace)
        cluster = snapshot(a_node("n1").cpu(2), replace(low, spec=spec), HIGH)
        decision = decide(cluster, rule_set("kube-1.35"), "default/high")
        after = {key: obj for _, key, obj in changes_of(cluster, decision)}
        gone.append(after["default/low"].metadata.deletion_timestamp)
    now = times.from_datetime(NOW)
    ends = (now + 1000, now + times.LONGEST_GRACE_SECONDS * 1000)
    assert gone == [times.to_text(end) for end in ends]
