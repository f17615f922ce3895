"""Which pods of a full request are taken over: those that the state does not have as they are."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
import pytest

from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.server.extender.brought import BodyNeeded, is_past, preemptor_brought, victims_brought
from policy.server.extender.wire import BadRequest, read_preempt
from policy.store.state.around import PodId
from tests.support.builders import NOW_MS, a_node, a_pod, objects


def known(name: str, uid: str | None = None) -> Pod:
    """A pod as API servers have it, with the defaults of what it does not say."""
    pod = a_pod(name).priority(1).cpu(1).scheduled_by("default-scheduler").pod
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, uid=f"uid-{name}" if uid is None else uid),
        spec=msgspec.structs.replace(pod.spec, preemption_policy="PreemptLowerPriority"),
    )


def on(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def taken(snapshot: Snapshot, **offered: list[Pod]) -> dict[str, Pod]:
    """By key, the pods of a request that offers these nodes that are taken over."""
    given = {node: {"Pods": pods, "NumPDBViolations": 0} for node, pods in offered.items()}
    body = msgspec.json.encode({"Pod": known("new"), "NodeNameToVictims": given})
    request = read_preempt(body)
    preemptor, _ = preemptor_brought(snapshot, request)
    victims = victims_brought(snapshot, request, body, gone=lambda pods: ())
    return {key: pod for _, key, pod in (*preemptor, *victims) if pod is not None}


def test_what_the_state_has_is_not_taken_over() -> None:
    """Everything else is: another uid or node, a pod that waits in the state, a new one."""
    nodes = objects(a_node("a").cpu(4), a_node("b").cpu(4))
    there = [
        on(known("one"), "a"),
        on(known("two"), "a"),
        on(known("three"), "b"),
        on(known("four", uid=""), "b"),
        known("waits"),
        known("new"),
    ]
    snapshot = Snapshot.from_objects([*nodes, *there], now_ms=NOW_MS)
    assert taken(snapshot, a=there[:2], b=there[2:4]) == {}
    others = {
        "default/one": on(known("one", uid="uid-later"), "a"),  # made again under its name
        "default/three": on(known("three"), "a"),
        "default/waits": on(known("waits"), "b"),
        "default/fresh": on(known("fresh"), "c"),  # on a node that the state does not have
    }
    one, three, waits, fresh = others.values()
    found = taken(snapshot, a=[one, there[1], three], b=[waits, there[2]], c=[fresh])
    assert found == others
    gone = snapshot.apply([("Pod", "default/two", None)])
    assert taken(gone, a=there[:2]) == {"default/two": there[1]}
    moved = gone.apply([("Pod", "default/two", on(known("two"), "b"))])
    assert taken(moved, a=there[:2], b=[there[2]]) == {"default/two": there[1]}
    assert taken(moved, c=[known("waits")]) == {"default/waits": known("waits")}
    empty = Snapshot.from_objects(nodes, now_ms=NOW_MS)
    new = {"default/new": known("new")}
    assert taken(empty, a=there[:1]) == {**new, "default/one": there[0]}


def test_objects_are_read_where_a_victim_is_unknown() -> None:
    """Only for these the body is needed; who has left does not come back."""
    there, new = on(known("one"), "a"), on(known("two"), "a")
    snapshot = Snapshot.from_objects(
        [*objects(a_node("a").cpu(4)), there, known("new")], now_ms=NOW_MS
    )
    offered = {"a": {"Pods": [there, new], "NumPDBViolations": 0}}
    body = msgspec.json.encode({"Pod": known("new"), "NodeNameToVictims": offered})
    request = read_preempt(body)
    with pytest.raises(BodyNeeded):
        victims_brought(snapshot, request, b"", gone=lambda pods: ())
    found = victims_brought(snapshot, request, body, gone=lambda pods: ())
    assert found == [("Pod", "default/two", new)]
    asked: list[Collection[PodId]] = []

    def gone(pods: Collection[PodId]) -> Collection[PodId]:
        asked.append(pods)
        return pods

    assert victims_brought(snapshot, request, body, gone=gone) == []
    assert asked == [[("default/two", "uid-two")]]
    complete = snapshot.apply([("Pod", "default/two", new)])
    assert victims_brought(complete, request, b"", gone=gone) == []


def test_what_is_past_does_not_come_back() -> None:
    """A pod that has ended, and one in whose place there is a later one of its name."""

    def made(pod: Pod, minutes: int) -> Pod:
        created = f"2026-11-21T10:{minutes:02}:00Z"
        meta = msgspec.structs.replace(pod.metadata, creation_timestamp=created)
        return msgspec.structs.replace(pod, metadata=meta)

    node, one = objects(a_node("a").cpu(4)), made(on(known("one"), "a"), 0)
    later = made(on(known("one", uid="uid-later"), "a"), 1)
    ended = msgspec.structs.replace(
        one, status=msgspec.structs.replace(one.status, phase="Succeeded")
    )

    def offered(there: Pod, sent: Pod) -> dict[str, Pod]:
        snapshot = Snapshot.from_objects([*node, there, known("new")], now_ms=NOW_MS)
        return taken(snapshot, a=[sent])

    assert offered(ended, one) == {}
    assert offered(later, one) == {}
    assert offered(one, later) == {"default/one": later}
    assert offered(made(later, 0), one) == {"default/one": one}


def of_preemptor(sent: dict[str, Any]) -> list[str]:
    """What is taken over where the state has `new`, and the scheduler sends it like this."""
    snapshot = Snapshot.from_objects([*objects(a_node("a").cpu(4)), known("new")], now_ms=NOW_MS)
    body = msgspec.json.encode({"Pod": sent, "NodeNameToVictims": {}})
    found, _ = preemptor_brought(snapshot, read_preempt(body))
    return [key for _, key, _ in found]


def test_a_preemptor_is_taken_over_where_it_waits_otherwise() -> None:
    """However its keys are spelt, and whatever an API server fills in or writes anew."""
    sent = msgspec.to_builtins(known("new"))
    assert of_preemptor(sent) == []
    status = {**sent["status"], "conditions": [{"type": "PodScheduled", "status": "False"}]}
    assert of_preemptor({**sent, "status": status}) == []
    spelt = {key.upper(): value for key, value in sent.items()}
    assert of_preemptor(spelt) == []
    empty = {**sent["metadata"], "labels": {}, "annotations": None}
    assert of_preemptor({**sent, "metadata": empty}) == []
    left_out = {key: value for key, value in sent["spec"].items() if key != "preemptionPolicy"}
    assert of_preemptor({**sent, "spec": left_out}) == []
    for changed in (
        {"spec": {**sent["spec"], "priority": 2}},
        {"metadata": {**sent["metadata"], "labels": {"app": "b"}}},
        {"metadata": {**sent["metadata"], "annotations": {"team": "b"}}},
        {"metadata": {**sent["metadata"], "ownerReferences": [{"kind": "Job", "name": "b"}]}},
        {"status": {**status, "nominatedNodeName": "a"}},
        {"status": {**sent["status"], "NominatedNodeName": "a"}},
    ):
        assert of_preemptor({**sent, **changed}) == ["default/new"], changed
    newer = [{"key": "sla", "operator": "Between", "value": "1,5"}]  # of a later API server
    assert of_preemptor({**sent, "spec": {**sent["spec"], "tolerations": newer}}) == ["default/new"]
    with pytest.raises(BadRequest, match="`Pod`: "):
        of_preemptor({**sent, "spec": {**sent["spec"], "priority": "high"}})


def test_an_empty_time_says_nothing_of_what_came_first() -> None:
    """As one that is missing: the pod of the request has its uid, and is another one."""

    def made(uid: str, at: str) -> Pod:
        pod = known("new", uid=uid)
        meta = msgspec.structs.replace(pod.metadata, creation_timestamp=at)
        return msgspec.structs.replace(pod, metadata=meta)

    before, after = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"
    assert not is_past(made("sent", ""), made("known", before))
    assert not is_past(made("sent", before), made("known", ""))
    assert is_past(made("sent", before), made("known", after))
