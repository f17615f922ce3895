"""Preemptions in the audit log of an API server, at every level of detail."""

from __future__ import annotations

from typing import Any

import pytest

from policy.observing.audit_log import AuditLog, AuditLogError
from policy.observing.model import Confidence

USER = "system:kube-scheduler"
AT = "2026-11-21T07:10:35.7{:05d}Z"


def entry(verb: str, pod: str, at: int = 0, **fields: Any) -> dict[str, Any]:
    """A completed request about a pod."""
    namespace, _, name = pod.partition("/")
    ref = {"resource": "pods", "namespace": namespace, "name": name, "apiVersion": "v1"}
    if verb == "patch":
        ref["subresource"] = "status"
    return {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": USER},
        "objectRef": ref,
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": AT.format(at),
        **fields,
    }


def found(*entries: dict[str, Any]) -> list[tuple[Any, ...]]:
    log = AuditLog()
    for one in entries:
        log.take(one)
    return [
        (one.preemptor, one.node, one.confidence, [victim.pod for victim in one.victims])
        for one in log.preemptions()
    ]


NOMINATES = {"requestObject": {"status": {"nominatedNodeName": "n1"}}}
ON_N1 = {"responseObject": {"metadata": {"uid": "u"}, "spec": {"nodeName": "n1"}}}
MARKS = {"requestObject": {"status": {"conditions": [{"type": "DisruptionTarget"}]}}}


def test_metadata_alone() -> None:
    """Two pods were deleted, one other was patched just then: that one is possible."""
    entries = (
        entry("patch", "team/high", 1),
        entry("patch", "shop/a", 2),
        entry("delete", "shop/a", 3),
        entry("delete", "shop/b", 4),
    )
    assert found(*entries) == [("team/high", "", Confidence.POSSIBLE, ["shop/a", "shop/b"])]


def test_requests_and_responses() -> None:
    """The nominated node is the victims' node: likely. The marks of victims name no preemptor."""
    entries = (
        entry("patch", "shop/a", 1, **MARKS),
        entry("delete", "shop/a", 2, **ON_N1),
        entry("patch", "team/high", 3, **NOMINATES),
        entry("patch", "team/other", 4, requestObject={"status": {"nominatedNodeName": "n2"}}),
    )
    assert found(*entries) == [("team/high", "n1", Confidence.LIKELY, ["shop/a"])]


def test_events_name_both() -> None:
    """What an event says is a claim, and its victim is not told a second time."""
    log = AuditLog()
    note = "Preempted by pod u-high on node n1"
    event = {
        "reason": "Preempted",
        "note": note,
        "regarding": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "u-a"},
        "related": {"kind": "Pod", "namespace": "team", "name": "high", "uid": "u-high"},
    }
    creates = entry("create", "shop/a.17", requestObject=event)
    creates["objectRef"]["resource"] = "events"
    creates["responseObject"] = {"metadata": {"uid": "e1", "name": "a.17", "namespace": "shop"}}
    log.take(creates)
    log.take(entry("delete", "shop/a", 2, **ON_N1))
    told = [(one.victim, one.preemptor, one.node, one.event_uid) for one in log.claims]
    assert (told, log.preemptions()) == ([("shop/a", "team/high", "n1", "e1")], [])


def test_a_uid_finds_the_pod_that_was_bound() -> None:
    """Events of 1.36 name the preemptor by its uid alone; so does its binding, and by its name."""
    log = AuditLog()
    event = {
        "reason": "Preempted",
        "note": "Preempted by pod u-high on node n1",
        "regarding": {"kind": "Pod", "namespace": "shop", "name": "a", "uid": "u-a"},
    }
    creates = entry("create", "shop/a.17", requestObject=event)
    creates["objectRef"]["resource"] = "events"
    binds = entry("create", "team/high", 9)
    binds["objectRef"] |= {"subresource": "binding", "uid": "u-high"}
    for one in (creates, binds):
        log.take(one)
    assert [(one.victim, one.preemptor, one.node) for one in log.claims] == [
        ("shop/a", "team/high", "n1")
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"user": {"username": "system:node:n1"}},
        {"stage": "RequestReceived"},
        {"responseStatus": {"code": 404}},
        {"verb": "get"},
    ],
)
def test_other_requests_say_nothing(other: dict[str, Any]) -> None:
    """Another user's, unfinished, failed, reading: no victim of the scheduler."""
    assert found({**entry("delete", "shop/a"), **other}) == []


def test_another_file_is_an_error() -> None:
    """Not passed over in silence."""
    with pytest.raises(AuditLogError, match=r"audit\.k8s\.io"):
        AuditLog().take({"kind": "Pod", "apiVersion": "v1"})
