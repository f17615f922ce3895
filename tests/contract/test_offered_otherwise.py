"""Victims that a scheduler has otherwise than the state: rules have to allow them as both do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from policy.audit.inputs import ReplayVerdict
from policy.audit.replay import replay_all
from policy.decision.model import Decision
from policy.manifests import from_dicts
from policy.rules import RuleSet
from policy.server.extender.brought import BodyNeeded
from policy.server.extender.call import PreemptCall
from policy.server.extender.deciding import Decider, Held, NotDecidable
from policy.server.extender.desk import _question
from policy.server.extender.wire import read_preempt
from policy.store import Store
from policy.store.model.decisions import CallMode
from tests.support.answered import HIGH, SECOND, asked, decides, item, pod
from tests.support.builders import NOW_MS
from tests.support.recording import recorded, recorder_of


def labelled(found: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {**found, "metadata": {**found["metadata"], "labels": labels}}


A, B = pod("a", 1, "n1"), pod("b", 2, "n2")
NODES = [
    item("Node", name, status={"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"}})
    for name in ("n1", "n2")
]
NEVER = {"preemption": "never"}


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """A pod on each of two nodes, and rules that protect by labels."""
    with Store.open(database_url) as opened:
        decides(opened, "protected")
        yield opened


def fill(store: Store, *pods: dict[str, Any]) -> None:
    objects = list(from_dicts([item("Namespace", "shop"), *NODES, *pods, HIGH]))
    store.record.import_objects("default", objects, at_ms=NOW_MS + SECOND, source="t")


def decided(store: Store, *offered: dict[str, Any], patience: float = 0.0) -> Decision:
    """All of the pods are offered, each with its node, as the scheduler has them."""
    nodes = {one["spec"]["nodeName"]: {"Pods": [one], "NumPDBViolations": 0} for one in offered}
    return asked(store, {"Pod": HIGH, "NodeNameToVictims": nodes}, patience=patience)


def told(decision: Decision) -> tuple[str | None, dict[str, str]]:
    statuses = decision.trace.dry_run_statuses
    return decision.node, {node: statuses[node].reasons[0] for node in statuses}


DENIED = "a victim is denied by rule protected-label"
AS_SENT = f"as the scheduler has the pods, {DENIED}"


def test_a_label_that_the_state_does_not_have_yet(store: Store) -> None:
    """The next node is taken, and the record says why; the state stays that of its followers."""
    fill(store, A, B)
    found = decided(store, labelled(A, **NEVER), B)
    assert told(found) == ("n2", {"n1": AS_SENT})
    (row,) = store.read.decisions("default")
    served = store.read.decision(row.id).served
    assert served is not None
    assert served.from_request == ()
    (a,) = (obj for obj in store.state.load("default").objects if obj.metadata.name == "a")
    assert a.metadata.labels in (None, {})
    assert [r.verdict for r in replay_all(store, [row.id])] == [ReplayVerdict.EQUAL]
    assert store.ledger.verify().ok


def test_a_label_that_the_scheduler_does_not_have_yet(store: Store) -> None:
    """Its cache may be behind as well: what the state says protects, too."""
    fill(store, labelled(A, **NEVER), B)
    assert told(decided(store, A, B)) == ("n2", {"n1": DENIED})


def test_what_rules_do_not_forbid_is_not_taken_over(store: Store) -> None:
    """The state is written by whoever follows the cluster."""
    fill(store, A, B)
    assert told(decided(store, labelled(A, app="web"), B)) == ("n1", {})
    (row,) = store.read.decisions("default")
    served = store.read.decision(row.id).served
    assert (served is not None and served.from_request) == ()


def test_no_victim_of_any_node_is_left(store: Store) -> None:
    fill(store, A, B)
    found = decided(store, labelled(A, **NEVER), labelled(B, **NEVER))
    assert (found.outcome.value, told(found)) == (
        "no-candidate",
        (None, {"n1": AS_SENT, "n2": AS_SENT}),
    )


def test_it_is_waited_for_the_state(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a victim that it does not have: a follower is a moment behind."""
    fill(store, A, B)
    held: list[object] = []
    monkeypatch.setattr("tests.support.answered.recorded", held.append)
    with pytest.raises(AttributeError):  # there is no decision
        decided(store, labelled(A, **NEVER), B, patience=60)
    assert [type(one) for one in held] == [Held]
    assert store.read.decisions("default") == []


def test_a_state_without_namespaces_is_not_waited_for(store: Store) -> None:
    """No victim is allowed whose namespace has unknown labels; and none will be in a moment."""
    rules = RuleSet.load("environments/prod")
    given: dict[str, Any] = {"at_ms": NOW_MS, "actor": "ann", "source": "prod", "reason": "t"}
    store.record.activate("prod", rules=rules, **given)
    objects = list(from_dicts([*NODES, A, B, HIGH]))
    store.record.import_objects("default", objects, at_ms=NOW_MS + SECOND, source="t")
    unknown = "the namespace of a victim is not in the recorded state"
    assert told(decided(store, A, B, patience=60)) == (None, {"n1": unknown, "n2": unknown})


def test_objects_are_asked_for_where_a_node_may_be_answered(store: Store) -> None:
    """Before the decision where the one before named a node, else after it, if it names one."""
    fill(store, A, B)
    never = pod("never", 9)
    never["spec"]["preemptionPolicy"] = "Never"
    made: list[str] = []

    def put(preemptor: dict[str, Any], *, whole: bool) -> bool:
        """Is it decided?"""
        fresh = pod(f"fresh-{len(made)}", 1, "n1")  # the state does not have it
        victims = [A] if preemptor is HIGH else [A, fresh]
        offered = {"n1": {"Pods": victims, "NumPDBViolations": 0}}
        body = msgspec.json.encode({"Pod": preemptor, "NodeNameToVictims": offered})
        call = PreemptCall(
            request=read_preempt(body),
            mode=CallMode.SHADOW,
            caller="",
            arrived_ms=NOW_MS,
            seconds=60,
            body=body if whole else b"",
        )
        found = decider.decide(_question(call))
        if isinstance(found, NotDecidable):
            assert isinstance(found.reason, BodyNeeded)
            return False
        made.append(recorded(found).decision.outcome.value)
        return True

    with recorder_of(store) as recorder:
        decider = Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)
        asked_for = [put(HIGH, whole=False), put(HIGH, whole=True), put(never, whole=False)]
        asked_for += [put(never, whole=True), put(never, whole=False), put(HIGH, whole=False)]
    assert asked_for == [False, True, False, True, True, False]
    assert made == ["preempt", "not-eligible", "not-eligible"]
