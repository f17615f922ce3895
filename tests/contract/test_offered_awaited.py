"""Nodes that are offered, and left out for what a follower may write in a moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from policy.decision import messages
from policy.decision.model import Decision, Outcome
from policy.manifests import from_dicts
from policy.server.extender.call import PreemptCall
from policy.server.extender.deciding import Decider, Held
from policy.server.extender.desk import _question
from policy.server.extender.wire import read_preempt
from policy.store import Store
from policy.store.model.decisions import CallMode
from tests.support.answered import HIGH, asked, decides, item, pod
from tests.support.builders import NOW_MS
from tests.support.recording import recorded, recorder_of

A, B = pod("a", 1, "n1"), pod("b", 2, "n2")
NODES = [
    item("Node", name, status={"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"}})
    for name in ("n1", "n2")
]
OFFERED = {
    node: {"Pods": [{"UID": f"uid-{victim}"}], "NumPDBViolations": 0}
    for node, victim in (("n1", "a"), ("n2", "b"))
}


def first(*, scheduler: str = "default-scheduler", priority: int = 20) -> dict[str, Any]:
    """A pod that is nominated to n1."""
    waits = pod("first", priority)
    waits["spec"]["schedulerName"] = scheduler
    waits["status"]["nominatedNodeName"] = "n1"
    return waits


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        decides(opened, "kube-1.36")
        yield opened


def fill(store: Store, *nominated: dict[str, Any], followed: bool = True) -> None:
    objects = list(from_dicts([item("Namespace", "shop"), *NODES, A, B, HIGH, *nominated]))
    store.record.import_objects("default", objects, at_ms=NOW_MS, source="t")
    if followed:
        news(store, version=1)


def news(store: Store, *, version: int) -> None:
    """A follower has written."""
    labelled = item("Namespace", "shop")
    labelled["metadata"]["labels"] = {"version": str(version)}
    told = [("Namespace", "shop", next(iter(from_dicts([labelled]))))]
    given: dict[str, Any] = {"at_ms": NOW_MS, "source": "t", "actor": "ann"}
    store.record.follow("default", [told], positions={"Namespace": version}, **given)


def decided(store: Store, *, patience: float) -> Decision:
    """Both nodes are offered."""
    return asked(store, {"Pod": HIGH, "NodeNameToMetaVictims": OFFERED}, patience=patience)


def told(decision: Decision) -> tuple[str | None, dict[str, str]]:
    statuses = decision.trace.dry_run_statuses
    return decision.node, {node: statuses[node].reasons[0] for node in statuses}


PROMISED = ("n2", {"n1": messages.PROMISED})


def test_a_promise_of_the_scheduler_that_offers_the_node_is_past(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is waited for the state also where another node could be answered."""
    fill(store, first())
    held: list[object] = []
    with monkeypatch.context() as patched:
        patched.setattr("tests.support.answered.recorded", held.append)
        with pytest.raises(AttributeError):  # there is no decision
            decided(store, patience=60)
    assert [type(one) for one in held] == [Held]
    assert store.read.decisions("default") == []
    # The promise is kept where no other state comes.
    assert told(decided(store, patience=0)) == PROMISED


@pytest.mark.parametrize("more", [(), (first(priority=8),)], ids=["alone", "beside-a-lower-one"])
def test_a_promise_of_another_scheduler_is_kept_at_once(
    store: Store, more: tuple[dict[str, Any], ...]
) -> None:
    """No scheduler knows the nominated pods of others: an offer says nothing of them."""
    other = first(scheduler="another")
    other["metadata"].update(name="other", uid="uid-other")
    fill(store, other, *more)
    assert told(decided(store, patience=60)) == PROMISED


def call_for(name: str, *, patience: float) -> PreemptCall:
    preemptor = pod(name, 9)
    body = msgspec.json.encode({"Pod": preemptor, "NodeNameToMetaVictims": OFFERED})
    return call_of(body, patience=patience)


def call_of(body: bytes, *, patience: float) -> PreemptCall:
    return PreemptCall(
        request=read_preempt(body),
        mode=CallMode.ENFORCE,
        caller="",
        arrived_ms=NOW_MS,
        seconds=60,
        body=body,
        patience=patience,
    )


def test_each_promise_is_waited_for_in_vain_once(store: Store) -> None:
    """Where the follower is away none is waited for before somebody writes again."""
    fill(store, first())
    with recorder_of(store) as recorder:
        decider = Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)
        decider.refresh()

        def in_vain(name: str) -> Decision:
            waits = call_for(name, patience=60)
            assert isinstance(decider.decide(_question(waits)), Held)
            waits.patience = 0
            return recorded(decider.decide(_question(waits))).decision

        def at_once(name: str) -> Decision:
            return recorded(decider.decide(_question(call_for(name, patience=60)))).decision

        assert in_vain("one").node == "n2"  # which is promised from now on, too
        decider.refresh()
        assert at_once("two").outcome is Outcome.NO_CANDIDATE
        news(store, version=2)
        decider.refresh()
        assert in_vain("three").outcome is Outcome.NO_CANDIDATE
        news(store, version=3)
        decider.refresh()
        assert at_once("four").outcome is Outcome.NO_CANDIDATE


def test_without_a_follower_no_promise_is_waited_for(store: Store) -> None:
    """None would end; whatever others write."""
    fill(store, first(), followed=False)
    assert told(decided(store, patience=60)) == PROMISED


def test_a_node_that_a_follower_will_write_is_waited_for_once(store: Store) -> None:
    """Its pods may be the ones to leave."""
    fill(store)
    one_more = pod("fresh", 0, "n3")
    offered = {
        "n2": {"Pods": [B], "NumPDBViolations": 0},
        "n3": {"Pods": [one_more], "NumPDBViolations": 0},
    }
    body = msgspec.json.encode({"Pod": HIGH, "NodeNameToVictims": offered})
    waits = call_of(body, patience=60)
    with recorder_of(store) as recorder:
        decider = Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)
        assert isinstance(decider.decide(_question(waits)), Held)
        waits.patience = 0
        assert recorded(decider.decide(_question(waits))).decision.node == "n2"
        decider.refresh()
        news(store, version=2)
        decider.refresh()
        again = recorded(decider.decide(_question(call_of(body, patience=60)))).decision
        assert (again.outcome, "n3" in again.trace.dry_run_statuses) == (Outcome.PREEMPT, True)


def test_a_node_that_is_made_anew_is_waited_for_again(store: Store) -> None:
    """It had gone when a scheduler offered it, which was waited for in vain."""
    others = [f"other{i}" for i in range(4)]
    nodes = [{**NODES[0], "metadata": {"name": f"on-{name}"}} for name in others]
    fill(store, *nodes, *(pod(name, 2, f"on-{name}") for name in others))
    now = [NOW_MS]
    waited = []
    with recorder_of(store) as recorder:
        decider = Decider(store, "prod", clock=lambda: now[0], recorder=recorder)
        for i, seconds in enumerate((0, 9, 11, 12)):
            now[0] = NOW_MS + 1000 * seconds
            offered = {
                node: {"Pods": [pod(name, priority, node)], "NumPDBViolations": 0}
                for name, priority, node in ((others[i], 2, f"on-{others[i]}"), ("new", 0, "n3"))
            }
            asks = {"Pod": pod(f"asks{i}", 9), "NodeNameToVictims": offered}
            question = call_of(msgspec.json.encode(asks), patience=60)
            found = decider.decide(_question(question))
            waited.append(isinstance(found, Held))
            if isinstance(found, Held):
                question.patience = 0
                found = decider.decide(_question(question))
            recorded(found)
            decider.refresh()
            news(store, version=10 + i)
            decider.refresh()
    assert waited == [True, False, True, False]


def test_a_victim_that_the_state_may_have_later_is_waited_for_once(store: Store) -> None:
    """In the short form, which brings no objects: it was bound, or made, a moment ago."""
    victims = ["uid-waiting", "uid-waiting", "new", "new"]
    others = [f"other{i}" for i in range(len(victims))]
    nodes = [{**NODES[0], "metadata": {"name": f"on-{name}"}} for name in others]
    fill(store, pod("waiting", 0), *nodes, *(pod(name, 2, f"on-{name}") for name in others))
    waited = []
    with recorder_of(store) as recorder:
        decider = Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)
        decider.refresh()
        for i, victim in enumerate(victims):
            offered = {
                "n1": {"Pods": [{"UID": victim}], "NumPDBViolations": 0},
                f"on-other{i}": {"Pods": [{"UID": f"uid-other{i}"}], "NumPDBViolations": 0},
            }
            preemptor = pod(f"asks{i}", 9)
            waits = call_of(
                msgspec.json.encode({"Pod": preemptor, "NodeNameToMetaVictims": offered}),
                patience=60,
            )
            found = decider.decide(_question(waits))
            waited.append(isinstance(found, Held))
            if isinstance(found, Held):
                waits.patience = 0
                found = decider.decide(_question(waits))
            assert recorded(found).decision.node == f"on-other{i}"
            news(store, version=10 + i)
            decider.refresh()
    assert waited == [True, False, True, False]


def test_a_victim_that_has_left_is_not_waited_for(store: Store) -> None:
    fill(store, pod("elsewhere", 0, "n2"))
    left: dict[str, Any] = {"at_ms": NOW_MS, "source": "t", "actor": "ann"}
    with recorder_of(store) as recorder:
        decider = Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)
        decider.refresh()
        store.record.follow("default", [[("Pod", "shop/a", None)]], positions={"Pod": 2}, **left)
        decider.refresh()
        for victim in ("uid-a", "uid-elsewhere"):
            offered = {**OFFERED, "n1": {"Pods": [{"UID": victim}], "NumPDBViolations": 0}}
            body = msgspec.json.encode({"Pod": pod("c", 9), "NodeNameToMetaVictims": offered})
            answered = decider.decide(_question(call_of(body, patience=60)))
            assert recorded(answered).decision.trace.dry_run_statuses["n1"].reasons == (
                messages.UNKNOWN_VICTIM,
            )


def test_a_promise_to_a_less_important_pod_counts_nowhere(store: Store) -> None:
    fill(store, first(priority=8))
    assert told(decided(store, patience=60)) == ("n1", {})
