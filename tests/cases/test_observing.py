"""Preemptions of a real scheduler, found in events, conditions and nominations."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from policy.audit.observed.reading import Seen, observe
from policy.cluster.objects import Condition, Pod, PodStatus, key_of
from policy.manifests.collected import SeenClaim
from policy.observing.cutting import SeenChange, in_server_order, segments
from policy.observing.events import Claim, EventError, claim_of
from policy.observing.model import Confidence, Evidence
from policy.observing.observer import PATIENCE_MS, SETTLE_MS, Observer
from tests.support.builders import a_pod

EVENT, MARK = Evidence.EVENT, Evidence.CONDITION
LEFT, NOMINATED = Evidence.DELETION, Evidence.NOMINATION
MS = 1_790_000_000_000
AT = "2026-09-21T14:13:20Z"
META = {"uid": "e1", "resourceVersion": "41", "namespace": "shop", "name": "low.17"}
VICTIM = {"kind": "Pod", "namespace": "shop", "name": "low", "uid": "u-low"}
PREEMPTOR = {"kind": "Pod", "namespace": "team", "name": "high", "uid": "u-high"}


def new_event(note: str, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": META,
        "reason": "Preempted",
        "note": note,
        "regarding": VICTIM,
        "related": PREEMPTOR,
        "eventTime": AT,
        "reportingController": "default-scheduler",
        **fields,
    }


def core_event(message: str, **fields: Any) -> dict[str, Any]:
    return {
        "metadata": META,
        "reason": "Preempted",
        "message": message,
        "involvedObject": VICTIM,
        "firstTimestamp": AT,
        "source": {"component": "default-scheduler"},
        **fields,
    }


def claim(**fields: Any) -> Claim:
    known: dict[str, Any] = {
        "victim": "shop/low",
        "victim_uid": "u-low",
        "preemptor": "team/high",
        "preemptor_uid": "u-high",
        "preemptor_kind": "Pod",
        "node": "n1",
        "scheduler": "default-scheduler",
        "at_ms": MS,
        "event_uid": "e1",
        "resource_version": 41,
    }
    return Claim(**{**known, **fields})


WORDINGS = {
    "1.13 to 1.16": (core_event("by team/high on node n1"), claim(preemptor_uid="")),
    "1.17 to 1.25": (core_event("Preempted by team/high on node n1", related=PREEMPTOR), claim()),
    "1.25 without related": (
        core_event("Preempted by team/high on node n1"),
        claim(preemptor_uid=""),
    ),
    "1.26 to 1.28": (new_event("Preempted by a pod on node n1"), claim()),
    "1.29 to 1.37": (new_event("Preempted by pod u-high on node n1"), claim()),
    "1.36, and 1.29 without related": (
        new_event("Preempted by pod u-high on node n1", related=None),
        claim(preemptor=""),
    ),
    "core/v1 of today": (
        core_event(
            "Preempted by pod u-high on node n1",
            related=PREEMPTOR,
            firstTimestamp=None,
            eventTime=AT,
            reportingComponent="default-scheduler",
        ),
        claim(),
    ),
    "a pod group": (
        new_event(
            "Preempted by podgroup g-1 on node cluster",
            related={"kind": "PodGroup", "namespace": "ml", "name": "gang", "uid": "g-1"},
        ),
        claim(preemptor="ml/gang", preemptor_uid="g-1", preemptor_kind="PodGroup", node="cluster"),
    ),
}


@pytest.mark.parametrize("name", WORDINGS)
def test_every_wording_names_victim_preemptor_and_node(name: str) -> None:
    """What schedulers of 1.13 to 1.37 write, in both API groups."""
    event, expected = WORDINGS[name]
    assert claim_of(event) == expected


@pytest.mark.parametrize(
    "event",
    [
        new_event("Preempted by pod u-high on node n1", reason="FailedScheduling"),
        new_event("Preempted to accommodate a workload in the ClusterQueue"),
        new_event("by team/high on node n1", regarding={"kind": "Workload", "name": "w"}),
        new_event("by team/high on node n1", regarding=None),
    ],
)
def test_other_events_say_nothing(event: dict[str, Any]) -> None:
    """Another reason, other words, another kind of object: Kueue writes such events."""
    assert claim_of(event) is None


def test_a_broken_event_is_an_error() -> None:
    """About a preemption, with a field of another type: it is not passed over."""
    with pytest.raises(EventError, match="Expected `str"):
        claim_of(new_event("by team/high on node n1", eventTime=7))


# --- from evidence to preemptions -----------------------------------------------------------------


def of(pod: Pod, *, uid: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, uid=uid))


def marked(pod: Pod) -> Pod:
    condition = Condition(
        type="DisruptionTarget",
        status="True",
        reason="PreemptionByScheduler",
        last_transition_time=AT,
    )
    return replace(pod, status=replace(pod.status, conditions=[condition]))


def deleted(pod: Pod) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=AT))


def nominated(pod: Pod, node: str = "n1") -> Pod:
    return replace(pod, status=PodStatus(phase="Pending", nominated_node_name=node))


LOW = of(a_pod("low").in_namespace("shop").priority(1).on("n1").pod, uid="u-low")
MID = of(a_pod("mid").in_namespace("shop").priority(2).on("n1").pod, uid="u-mid")
HIGH = of(a_pod("high").in_namespace("team").priority(10).pod, uid="u-high")
OTHER = of(a_pod("other").in_namespace("team").priority(9).pod, uid="u-other")


def found(observer: Observer, now_ms: int | None = None) -> list[tuple[Any, ...]]:
    return [
        (
            one.preemptor,
            one.node,
            one.confidence,
            [(victim.pod, victim.evidence) for victim in one.victims],
        )
        for one in observer.conclude(now_ms)
    ]


def preempted(observer: Observer, *, event: bool = True, at_ms: int = MS) -> None:
    """What one preemption looks like: nomination, mark, deletion, event."""
    observer.pod(HIGH, nominated(HIGH), version=10, at_ms=at_ms)
    observer.pod(LOW, marked(LOW), version=11, at_ms=at_ms)
    observer.pod(marked(LOW), deleted(marked(LOW)), version=12, at_ms=at_ms)
    if event:
        observer.event(claim(), at_ms=at_ms)


CERTAIN = ("team/high", "n1", Confidence.CERTAIN, [("shop/low", (EVENT, MARK, LEFT, NOMINATED))])


def test_an_event_makes_it_certain() -> None:
    """With all the other evidence beside it."""
    observer = Observer()
    preempted(observer)
    assert found(observer) == [CERTAIN]


def test_it_is_told_once_and_when_it_has_settled() -> None:
    """Not while more may come, and the same event in both API groups is one."""
    observer = Observer()
    preempted(observer)
    observer.event(claim(), at_ms=MS)
    early = found(observer, MS + SETTLE_MS - 1)
    settled = found(observer, MS + SETTLE_MS)
    again = found(observer, MS + 10 * PATIENCE_MS)
    assert (early, settled, again) == ([], [CERTAIN], [])


def test_recorded_events_are_not_told_again() -> None:
    """After a restart events come a second time."""
    observer = Observer(recorded_events=["e1"])
    observer.event(claim(), at_ms=MS)
    assert found(observer) == []


def test_a_late_event_is_waited_for() -> None:
    """The mark alone says nothing for a while; then the pod nominated there is likely."""
    observer = Observer()
    preempted(observer, event=False)
    waiting = found(observer, MS + PATIENCE_MS - 1)
    likely = found(observer, MS + PATIENCE_MS)
    assert (waiting, likely) == (
        [],
        [("team/high", "n1", Confidence.LIKELY, [("shop/low", (MARK, LEFT, NOMINATED))])],
    )


def test_two_that_may_have_done_it() -> None:
    """Both were nominated to the node just then: the more important one is only possible."""
    observer = Observer()
    observer.pod(OTHER, nominated(OTHER), version=9, at_ms=MS)
    preempted(observer, event=False)
    assert found(observer)[0][:3] == ("team/high", "n1", Confidence.POSSIBLE)


def test_a_marked_pod_without_any_preemptor() -> None:
    """Its event has expired, and nothing is nominated: the preemptor is unknown."""
    observer = Observer()
    observer.pod(None, deleted(marked(LOW)), version=0, at_ms=MS)
    assert found(observer) == [("", "n1", Confidence.POSSIBLE, [("shop/low", (MARK, LEFT))])]


def test_a_nomination_alone() -> None:
    """Its victims were leaving already: they get no event."""
    observer = Observer()
    observer.pod(LOW, deleted(LOW), version=5, at_ms=MS - 60_000)
    observer.pod(HIGH, nominated(HIGH), version=10, at_ms=MS)
    assert found(observer) == [
        ("team/high", "n1", Confidence.POSSIBLE, [("shop/low", (LEFT, NOMINATED))])
    ]


def test_what_was_gone_before_a_pod_was_there_made_no_room_for_it() -> None:
    """Pods end and are deleted by others all the time."""
    observer = Observer()
    observer.pod(MID, None, version=5, at_ms=MS - 2_000)
    observer.pod(LOW, deleted(LOW), version=6, at_ms=MS - 2_000)
    observer.pod(None, HIGH, version=7, at_ms=MS)
    observer.pod(deleted(LOW), None, version=8, at_ms=MS)
    observer.pod(HIGH, nominated(HIGH), version=10, at_ms=MS)
    assert found(observer) == [
        ("team/high", "n1", Confidence.POSSIBLE, [("shop/low", (LEFT, NOMINATED))])
    ]


def test_a_nomination_to_a_free_node_is_no_preemption() -> None:
    """Nobody leaves: the scheduler nominates before slow bindings as well."""
    observer = Observer()
    observer.pod(HIGH, nominated(HIGH), version=10, at_ms=MS)
    observer.pod(MID, deleted(MID), version=11, at_ms=MS + 60_000)
    assert found(observer) == []


def test_one_victim_of_two_preemptors() -> None:
    """Deletions are asynchronous: both evicted it, and the mark is the first one's."""
    observer = Observer()
    preempted(observer)
    second = claim(preemptor="team/other", preemptor_uid="u-other", event_uid="e2", at_ms=MS + 5)
    observer.event(second, at_ms=MS + 5)
    told = observer.conclude()
    assert [(p.preemptor, [v.marked_here for v in p.victims]) for p in told] == [
        ("team/high", [True]),
        ("team/other", [False]),
    ]


def test_the_same_preemptor_again_later() -> None:
    """Two bursts of events are two preemptions; the nomination belongs to the first."""
    observer = Observer()
    preempted(observer)
    again = claim(victim="shop/mid", victim_uid="u-mid", event_uid="e2", at_ms=MS + 60_000)
    observer.event(again, at_ms=MS + 60_000)
    told = observer.conclude()
    assert [([v.pod for v in p.victims], p.nominated) for p in told] == [
        (["shop/low"], True),
        (["shop/mid"], False),
    ]


@pytest.mark.parametrize("gone_before", [True, False])
def test_a_pod_that_was_nominated_before_and_then_evicts(gone_before: bool) -> None:
    """It waited for a pod that was leaving already, another took that room, and it tried again."""
    observer = Observer()
    observer.pod(MID, deleted(marked(MID)), version=5, at_ms=MS)
    observer.pod(HIGH, nominated(HIGH), version=10, at_ms=MS)
    if gone_before:
        observer.pod(deleted(marked(MID)), None, version=11, at_ms=MS + 5_000)
    observer.pod(LOW, marked(LOW), version=12, at_ms=MS + 5_000)
    observer.event(claim(at_ms=MS + 5_000), at_ms=MS + 5_000)
    told = next(one for one in observer.conclude() if one.confidence is Confidence.CERTAIN)
    assert (told.again, told.nomination_version) == ((True, 0) if gone_before else (False, 10))


@pytest.mark.parametrize("first_is_gone", [True, False])
def test_the_same_preemptor_again_when_its_victims_have_left(first_is_gone: bool) -> None:
    """It may not preempt before; while one is there, a later mark is of the same preemption."""
    observer = Observer()
    preempted(observer)
    if first_is_gone:
        observer.pod(deleted(marked(LOW)), None, version=13, at_ms=MS + 900)
    observer.pod(MID, marked(MID), version=14, at_ms=MS + 1000)
    again = claim(victim="shop/mid", victim_uid="u-mid", event_uid="e2", at_ms=MS + 1000)
    observer.event(again, at_ms=MS + 1000)
    told = [[v.pod for v in p.victims] for p in observer.conclude()]
    assert told == ([["shop/low"], ["shop/mid"]] if first_is_gone else [["shop/low", "shop/mid"]])


def test_a_uid_alone_finds_its_pod() -> None:
    """The event names no pod; the nominated one has that uid."""
    observer = Observer()
    observer.pod(HIGH, nominated(HIGH), version=10, at_ms=MS)
    observer.event(claim(preemptor=""), at_ms=MS)
    assert found(observer)[0][:3] == ("team/high", "n1", Confidence.CERTAIN)


def test_a_uid_alone_finds_a_pod_whose_nomination_was_not_seen() -> None:
    """Events of 1.36 name no pod, and one that runs by now is nominated to no node."""
    runs = of(a_pod("high").in_namespace("team").priority(10).on("n1").pod, uid="u-high")
    observer = Observer(pods=lambda: [LOW, runs])
    observer.event(claim(preemptor=""), at_ms=MS)
    observer.event(claim(preemptor="", preemptor_uid="u-gone", event_uid="e2"), at_ms=MS)
    assert found(observer) == [
        ("", "n1", Confidence.POSSIBLE, [("shop/low", (EVENT,))]),
        ("team/high", "n1", Confidence.CERTAIN, [("shop/low", (EVENT,))]),
    ]


def test_a_dump_whose_event_names_a_uid_alone() -> None:
    """The pod is in it."""
    runs = of(a_pod("high").in_namespace("team").priority(10).on("n1").pod, uid="u-high")
    seen = Seen(
        listed=[runs], entries=(), claims=[SeenClaim(claim=claim(preemptor=""), received_ms=MS)]
    )
    told = observe(seen, [], at_ms=MS).preemptions
    assert [(one.preemptor, one.confidence) for one in told] == [("team/high", "certain")]


def test_the_oldest_event_that_is_not_told_yet() -> None:
    """From before it events must be read again after a stop."""
    observer = Observer()
    observer.event(claim(), at_ms=MS)
    before = observer.oldest_event()
    observer.conclude()
    assert (before, observer.oldest_event()) == (41, None)


# --- revisions ------------------------------------------------------------------------------------


def change(before: Pod | None, after: Pod | None, version: int) -> SeenChange:
    pod = after or before
    assert pod is not None
    return SeenChange(
        kind="Pod",
        key=key_of(pod),
        before=before,
        after=after,
        resource_version=version,
        at_ms=MS,
    )


WAVE = [
    change(None, HIGH, 8),
    change(None, OTHER, 9),
    change(HIGH, nominated(HIGH), 10),
    change(LOW, marked(LOW), 11),
    change(marked(LOW), deleted(marked(LOW)), 12),
    change(OTHER, nominated(OTHER), 13),
    change(marked(LOW), None, 14),
]


def test_no_first_effect_shares_a_revision_with_what_was_before() -> None:
    """Each nomination and each mark begins a revision; what follows from it stays in it."""
    cut = [[one.resource_version for one in stretch] for stretch in segments(WAVE)]
    assert cut == [[8, 9], [10], [11, 12], [13, 14]]


def test_without_marks_deletions_begin_a_revision() -> None:
    """Before 1.25 the deletion is the first that is seen of a victim."""
    changes = [change(None, HIGH, 8), change(LOW, deleted(LOW), 9), change(MID, None, 10)]
    cut = [[one.resource_version for one in stretch] for stretch in segments(changes, marks=False)]
    assert cut == [[8], [9], [10]]


def test_changes_of_all_kinds_in_one_order() -> None:
    """By the server's counter; what has none stays behind what it came after."""
    loose = [change(None, HIGH, 9), change(None, LOW, 0), change(None, MID, 7)]
    assert [one.key for one in in_server_order(loose)] == ["shop/mid", "team/high", "shop/low"]
