"""Calls one after the other: the next ones are decided while those before are committed."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pytest

from policy.audit.replay import replay_all
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.scheduling.state import StateMoved
from policy.server.extender.call import GivenUp, PreemptCall
from policy.server.extender.deciding import (
    Answered,
    Decider,
    Held,
    NotDecidable,
    WaitingRequest,
)
from policy.server.extender.desk import _question, _said
from policy.server.extender.record_channel import DecidedCall
from policy.server.extender.recorder import PodsMoved, Recorder, RulesMoved
from policy.server.extender.wire import read_preempt
from policy.store import Cause, Store
from policy.store.errors import AlreadyWritten, StoreError
from policy.store.model.decisions import CallAnswer, CallMode, Recorded
from policy.store.read.history import Moment
from policy.store.record.keys import WriteKey
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.commits import fail_commit_of, slow_commit_of
from tests.support.recording import recorded, recorder_of

SIZE = 8

MakeDecider: TypeAlias = Callable[[Store], Decider]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield filled(opened)


def waiting(number: int) -> Pod:
    """A pod as API servers have it, with the defaults of what it does not say."""
    made = a_pod(f"w{number}").priority(10).cpu(4).scheduled_by("default-scheduler").created(9)
    pod = made.pod
    spec = msgspec.structs.replace(pod.spec, preemption_policy="PreemptLowerPriority")
    return msgspec.structs.replace(pod, spec=spec)


def filled(store: Store) -> Store:
    """Full nodes with a pod each, as many pods that wait, and environment `prod`."""
    nodes = [
        a_node(f"n{i}").cpu(4).running(a_pod(f"low-{i}").priority(1).cpu(4)) for i in range(SIZE)
    ]
    pods = [waiting(i) for i in range(SIZE)]
    options = {"at_ms": NOW_MS, "actor": "ann"}
    store.record.import_objects("default", objects(*nodes, *pods), at_ms=NOW_MS, source="test")
    store.record.create_environment("prod", "default", **options)
    rules = RuleSet.load("kube-1.36")
    store.record.activate("prod", rules=rules, reason="test", source="kube-1.36", **options)
    return store


@pytest.fixture
def decider() -> Iterator[MakeDecider]:
    with ExitStack() as stack:

        def made(store: Store) -> Decider:
            recorder = stack.enter_context(recorder_of(store))
            return Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)

        yield made


def calls(*numbers: int) -> list[WaitingRequest]:
    """Of a scheduler that offers each node with its pod to each of the pods that wait."""
    offered = {
        f"n{i}": {"Pods": [{"UID": f"default/low-{i}"}], "NumPDBViolations": 0} for i in range(SIZE)
    }
    return [
        _question(
            PreemptCall(
                request=read_preempt(
                    msgspec.json.encode({"Pod": pod, "NodeNameToMetaVictims": offered})
                ),
                mode=CallMode.ENFORCE,
                caller="",
                arrived_ms=NOW_MS,
                seconds=60,
            )
        )
        for pod in map(waiting, numbers)
    ]


Decided: TypeAlias = Future[Answered] | NotDecidable | Held | None


def sent(desk: Decider, questions: Iterable[WaitingRequest]) -> list[Decided]:
    """Each decided on what the one before leads to."""
    return [desk.decide(question) for question in questions]


def chosen(*decided: Decided) -> dict[str, str | None]:
    """By pod, the node that it was answered."""
    return dict(map(choice, map(recorded, decided)))


def choice(answered: Answered) -> tuple[str, str | None]:
    return answered.decision.preemptor, answered.decision.node


def chosen_at_last(
    desk: Decider, questions: Iterable[WaitingRequest], decided: Iterable[Decided]
) -> dict[str, str | None]:
    """The same of calls that are decided again where nothing was recorded of them.

    Because others were faster, who write no more, or because their transaction failed.
    """
    found: dict[str, str | None] = {}
    for question, first in zip(questions, decided, strict=True):
        last = first
        for _ in range(3):
            assert isinstance(last, Future)
            if isinstance(last.exception(), StateMoved | StoreError):
                last = desk.decide(question)
        found |= chosen(last)
    return found


def in_order(store: Store, *, decisions: int) -> None:
    """So many decisions are recorded, each on the state that the one before led to."""
    ids = store.read.decision_ids("default")
    verdicts = Counter(replayed.verdict.value for replayed in replay_all(store, ids))
    assert verdicts == {"equal": decisions}
    assert store.ledger.verify().ok


def test_a_commit_that_fails_takes_back_what_was_decided_on_it(
    store: Store, decider: MakeDecider
) -> None:
    """Nothing is recorded that was decided on what it would have led to; what comes next is."""
    fail_commit_of(store, "default/w1")
    desk = decider(store)
    assert chosen(*sent(desk, calls(0))) == {"default/w0": "n0"}
    failing, *after = sent(desk, calls(1, 2, 3))
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        recorded(failing)
    given = chosen_at_last(desk, calls(2, 3), after)
    given |= chosen_at_last(desk, calls(4), sent(desk, calls(4)))
    assert sorted(given) == ["default/w2", "default/w3", "default/w4"]
    assert sorted(map(str, given.values())) == ["n1", "n2", "n3"]
    in_order(store, decisions=4)


def test_a_statement_that_fails_at_a_server_takes_back_its_transaction_alone(
    make_postgres: Callable[[str], str], postgres_template: str, decider: MakeDecider
) -> None:
    """Of what was sent last mostly nothing is heard before the commit."""
    with Store.open(make_postgres(postgres_template)) as opened:
        store = filled(opened)
        with store._database.writing() as connection:
            connection.exec_driver_sql(
                "ALTER TABLE extender_calls ADD CONSTRAINT first CHECK (decision_id < 2)"
            )
        desk = decider(store)
        assert chosen(*sent(desk, calls(0))) == {"default/w0": "n0"}
        (refused,) = sent(desk, calls(1))
        with pytest.raises(StoreError, match="first"):
            recorded(refused)
        with store._database.writing() as connection:
            connection.exec_driver_sql("ALTER TABLE extender_calls DROP CONSTRAINT first")
        assert chosen(*sent(desk, calls(2))) == {"default/w2": "n1"}
        in_order(store, decisions=2)


def test_the_next_calls_are_decided_while_a_server_commits(
    make_postgres: Callable[[str], str], postgres_template: str, decider: MakeDecider
) -> None:
    """And recorded behind it, on the state that it leads to."""
    with Store.open(make_postgres(postgres_template)) as opened:
        store = filled(opened)
        slow_commit_of(store, "default/w0")
        desk = decider(store)
        before = desk.state.revision
        first, *others = sent(desk, calls(0, 1, 2))
        assert isinstance(first, Future)
        assert not first.done()
        nodes = {f"default/w{i}": f"n{i}" for i in range(3)}
        assert chosen(first, *others) == nodes
        assert desk.state.revision == before + 3
        in_order(store, decisions=3)


def test_two_that_decide_side_by_side_lose_and_double_nothing(
    store: Store, decider: MakeDecider
) -> None:
    """Each throws away what it decided while the other recorded; a third one changes the state."""
    desks = [decider(store) for _ in range(2)]
    given: dict[str, str | None] = {}
    for number in range(0, SIZE, 2):
        asked = [calls(number + i) for i in range(len(desks))]
        rows = [sent(desk, questions) for desk, questions in zip(desks, asked, strict=True)]
        pod = ("Pod", f"default/other-{number}", a_pod(f"other-{number}").cpu(1).pod)
        for desk, questions, row in zip(desks, asked, rows, strict=True):
            given |= chosen_at_last(desk, questions, row)
        store.record.change("default", [pod], at_ms=NOW_MS, source="watch", cause=Cause.LIVE)
    assert sorted(given) == [f"default/w{i}" for i in range(SIZE)]
    assert sorted(map(str, given.values())) == [f"n{i}" for i in range(SIZE)]
    in_order(store, decisions=SIZE)


def test_calls_are_decided_again_by_the_rules_that_are_active_by_now(
    store: Store, decider: MakeDecider
) -> None:
    """And so are the next ones, which were decided on what the first would have led to."""
    desk = decider(store)
    options = {"at_ms": NOW_MS, "actor": "ann", "reason": "test", "source": "kube-1.20"}
    store.record.activate("prod", rules=RuleSet.load("kube-1.20"), **options)
    asked = calls(0, 1, 2)
    decided = sent(desk, asked)
    assert isinstance(decided[0], Future)
    assert isinstance(decided[0].exception(), RulesMoved)
    given = chosen_at_last(desk, asked, decided)
    assert sorted(given) == ["default/w0", "default/w1", "default/w2"]
    assert {row.rule_set for row in store.read.decisions("default")} == {"kube-1.20"}
    in_order(store, decisions=3)


def test_what_is_not_claimed_is_not_recorded(store: Store, decider: MakeDecider) -> None:
    """A call that is answered in another way meanwhile takes back what shares its transaction."""
    desk = decider(store)
    (late, early) = calls(0, 1)
    for decided in sent(desk, [replace(late, claim=give_up), early]):
        with pytest.raises(StateMoved):
            recorded(decided)
    assert store.read.decision_ids("default") == []
    assert chosen(desk.decide(early)) == {"default/w1": "n0"}
    in_order(store, decisions=1)


def test_what_was_decided_on_the_same_state_is_recorded_all_the_same(
    store: Store, decider: MakeDecider
) -> None:
    """A call that changes nothing is not claimed; the next one was decided meanwhile."""
    desk = decider(store)
    begun, decided_next = threading.Event(), threading.Event()

    def claim() -> None:
        begun.set()
        assert decided_next.wait(60)
        raise GivenUp

    late, early = calls(0, 1)
    first = desk.decide(replace(late, effective=False, claim=claim))
    assert begun.wait(60)
    second = desk.decide(early)
    decided_next.set()
    with pytest.raises(StateMoved):
        recorded(first)
    assert chosen(second) == {"default/w1": "n0"}
    assert chosen(*sent(desk, calls(2))) == {"default/w2": "n1"}
    in_order(store, decisions=2)


ONCE = WriteKey(principal="extender", operation="test", key="late")


def test_what_has_a_key_is_recorded_by_one_process(store: Store, decider: MakeDecider) -> None:
    """Of two that record it at the same time."""
    one, other = decider(store), decider(store)
    begun, decided_too = threading.Event(), threading.Event()

    def claim() -> None:
        begun.set()
        assert decided_too.wait(60)

    (late,) = [replace(call, effective=False, once=ONCE) for call in calls(0)]
    first = one.decide(replace(late, claim=claim))
    assert begun.wait(60)
    second = other.decide(late)
    decided_too.set()
    with pytest.raises(AlreadyWritten):
        recorded(second)
    assert store.read.decision_ids("default") == [recorded(first).recorded.decision_id]
    assert store.read.key_is_taken(ONCE)
    in_order(store, decisions=1)


def test_a_key_is_taken_with_what_is_recorded(store: Store, decider: MakeDecider) -> None:
    """It is free again where that was taken back, and takes back nothing but its own call."""
    desk = decider(store)
    late, early = calls(0, 1)
    late = replace(late, effective=False, once=ONCE)
    with pytest.raises(StateMoved):
        recorded(desk.decide(replace(late, claim=give_up)))
    assert not store.read.key_is_taken(ONCE)
    recorded(desk.decide(late))
    known, decided = sent(desk, [late, early])
    with pytest.raises(AlreadyWritten):
        recorded(known)
    assert chosen(decided) == {"default/w1": "n0"}
    in_order(store, decisions=2)


def test_a_revision_of_others_is_not_the_one_that_was_decided_on(store: Store) -> None:
    """Not even with its number: what was to have it was taken back."""
    with recorder_of(store) as recorder:

        class Elsewhere(Recorder):
            def __init__(self) -> None:
                """It sends over the other one."""

            def record(self, call: DecidedCall, *, claim: Callable[[], None]) -> Future[Recorded]:
                other = msgspec.structs.replace(call, expected_digest=f"sha256:{'0' * 64}")
                return recorder.record(other, claim=claim)

        desk = Decider(store, "prod", clock=lambda: NOW_MS, recorder=Elsewhere())
        (decided,) = sent(desk, calls(0))
        with pytest.raises(StateMoved, match="made by others"):
            recorded(decided)
    assert store.read.decision_ids("default") == []


def test_a_transaction_has_the_calls_of_one_caller(store: Store, decider: MakeDecider) -> None:
    """Those of another one are recorded after it, in the order in which they came."""
    callers = ("a", "a", "b", "a", "b", "b")
    asked = [replace(q, caller=c) for q, c in zip(calls(*range(6)), callers, strict=True)]
    found = chosen(*sent(decider(store), asked))
    assert found == {f"default/w{i}": f"n{i}" for i in range(6)}
    ids = sorted(store.read.decision_ids("default"))
    assert [store.read.decision(number).row.actor for number in ids] == list(callers)
    in_order(store, decisions=6)


def test_a_pod_that_asks_again_shares_a_transaction(store: Store, decider: MakeDecider) -> None:
    """Before it is answered, known to the state or brought: it is given the same again."""
    asked = (0, 8, 8, 0, 8)
    found = [choice(recorded(decided)) for decided in sent(decider(store), calls(*asked))]
    assert found == [(f"default/w{i}", {0: "n0", 8: "n1"}[i]) for i in asked]
    in_order(store, decisions=5)


def test_what_nobody_can_claim_any_more_is_not_recorded(store: Store) -> None:
    """The process that decides ends while a row is written: the other one writes nothing more."""
    reached, ended = threading.Event(), threading.Event()

    def claim() -> None:
        reached.set()
        assert ended.wait(60)

    with recorder_of(store) as recorder:
        desk = Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)
        (asked,) = calls(0)
        desk.decide(replace(asked, claim=claim))
        assert reached.wait(60)
        recorder._socket.shutdown(socket.SHUT_WR)
        ended.set()
    assert store.read.decision_ids("default") == []
    assert store.ledger.verify().ok


def brought(store: Store) -> dict[str, tuple[str, ...]]:
    """By preemptor, the pods that its call brought."""
    found = [store.read.decision(number) for number in store.read.decision_ids("default")]
    return {one.record.preemptor: one.served.from_request for one in found if one.served}


def test_pods_that_calls_bring_wait_for_no_commit(
    make_postgres: Callable[[str], str], postgres_template: str, decider: MakeDecider
) -> None:
    """Each is recorded with the decision that reads it, as a revision of its own before it."""
    with Store.open(make_postgres(postgres_template)) as opened:
        store = filled(opened)
        slow_commit_of(store, "default/w8")
        desk = decider(store)
        before = desk.state.revision
        first, *others = sent(desk, calls(8, 9, 0, 10))
        assert isinstance(first, Future)
        assert not first.done()
        nodes = {"default/w8": "n0", "default/w9": "n1", "default/w0": "n2", "default/w10": "n3"}
        assert chosen(first, *others) == nodes
        assert desk.state.revision == before + 7
        assert brought(store) == {
            name: () if name == "default/w0" else (name,) for name in sorted(nodes)
        }
        in_order(store, decisions=4)


def test_what_is_not_recorded_brings_nothing(
    store: Store, decider: MakeDecider, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod comes with the decision that is recorded; the state before it is still there."""
    desk = decider(store)
    before = desk.state.revision
    (late,) = calls(8)
    for _ in range(2):
        with pytest.raises(StateMoved):
            recorded(desk.decide(replace(late, claim=give_up)))
        assert "w8" not in pods_of(store)
    assert chosen(desk.decide(late)) == {"default/w8": "n0"}
    assert desk.state.revision == before + 2
    assert brought(store) == {"default/w8": ("default/w8",)}
    assert not caplog.records  # as where the state has to be read anew
    in_order(store, decisions=1)


def test_two_that_bring_pods_side_by_side_lose_and_double_nothing(
    store: Store, decider: MakeDecider
) -> None:
    """What was decided on a state that the other one has changed is brought again, and once."""
    desks = [decider(store) for _ in range(2)]
    given: dict[str, str | None] = {}
    before = desks[0].state.revision
    for numbers in ((8, 9), (10, 11)):
        asked = [calls(number) for number in numbers]
        rows = [sent(desk, questions) for desk, questions in zip(desks, asked, strict=True)]
        for desk, questions, row in zip(desks, asked, rows, strict=True):
            given |= chosen_at_last(desk, questions, row)
    assert sorted(map(str, given.values())) == ["n0", "n1", "n2", "n3"]
    assert brought(store) == {f"default/w{i}": (f"default/w{i}",) for i in (8, 9, 10, 11)}
    for desk in desks:
        desk.refresh()
        assert desk.state.revision == before + 8
    in_order(store, decisions=4)


REMEMBERING: Final = """
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: remembering}
extends: kube-1.36
spec:
  eligibility:
    insert:
      - at: start
        rule:
          id: preempts-too-often
          when: history.namespacePreemptions(preemptor.namespace, duration('1h')) >= 9
          verdict: deny
          reason: the namespace preempted nine times
  victims:
    forbid:
      insert:
        - at: start
          rule:
            id: lost-one
            when: >-
              history.namespacePreemptedCount(victim.namespace, duration('1h')) >= 2
              || history.preemptedCount(victim.workload, duration('1h')) > 0
                && history.secondsSinceLastPreempted(victim.workload) > 60
            reason: the namespace lost two pods
"""


def by_rules_that_remember(store: Store, folder: Path) -> RuleSet:
    file = folder / "remembering.yaml"
    file.write_text(REMEMBERING)
    rules = RuleSet.load(file)
    options = {"at_ms": NOW_MS, "actor": "ann", "reason": "test", "source": "remembering"}
    store.record.activate("prod", rules=rules, **options)
    return rules


def remembered(store: Store, rules: RuleSet) -> list[Mapping[str, Mapping[str, int]]]:
    """The figures that each decision read, which are those of the record just before it."""
    found = []
    for number in store.read.decision_ids("default"):
        stored = store.read.decision(number)
        history = stored.record.history
        assert history is not None
        moment = Moment(decision_id=number, base_revision=stored.row.base_revision)
        assert history == store.read.history(
            "default", rules.history_needs, now_ms=stored.record.now_ms, before=moment
        )
        found.append(history)
    return found


def test_rules_that_remember_wait_for_no_commit(
    make_postgres: Callable[[str], str],
    postgres_template: str,
    decider: MakeDecider,
    tmp_path: Path,
) -> None:
    """What is under way counts as if it were in the record."""
    with Store.open(make_postgres(postgres_template)) as opened:
        store = filled(opened)
        rules = by_rules_that_remember(store, tmp_path)
        slow_commit_of(store, "default/w0")
        desk = decider(store)
        first, *others = sent(desk, calls(0, 1, 2, 3))
        assert isinstance(first, Future)
        assert not first.done()
        nodes = {"default/w0": "n0", "default/w1": "n1", "default/w2": None, "default/w3": None}
        assert chosen(first, *others) == nodes
        lost = [figures["namespacePreemptedCount/3600"] for figures in remembered(store, rules)]
        assert lost == [{}, {"default": 1}, {"default": 2}, {"default": 2}]
        in_order(store, decisions=4)


def test_rules_that_remember_count_what_is_committed_meanwhile_once(
    store: Store, tmp_path: Path
) -> None:
    """It is in the record before that is known where the next call is decided."""
    rules = by_rules_that_remember(store, tmp_path)
    with recorder_of(store) as recorder:
        told: list[tuple[Future[Recorded], Recorded]] = []

        class Late(Recorder):
            def __init__(self) -> None:
                """It records by the other one, and says so when it is asked to."""

            def record(self, call: DecidedCall, *, claim: Callable[[], None]) -> Future[Recorded]:
                commit: Future[Recorded] = Future()
                told.append((commit, recorder.record(call, claim=claim).result()))
                return commit

        desk = Decider(store, "prod", clock=lambda: NOW_MS, recorder=Late())
        decided = sent(desk, calls(0, 1, 2))
        for commit, done in told:
            commit.set_result(done)
        assert chosen(*decided) == {"default/w0": "n0", "default/w1": "n1", "default/w2": None}
    remembered(store, rules)
    in_order(store, decisions=3)


def test_rules_that_remember_forget_what_is_taken_back(
    store: Store, decider: MakeDecider, tmp_path: Path
) -> None:
    """What counted it is decided again."""
    rules = by_rules_that_remember(store, tmp_path)
    fail_commit_of(store, "default/w0")
    desk = decider(store)
    failing, *after = sent(desk, calls(0, 1, 2))
    with pytest.raises(StoreError, match=r"(?i)foreign key"):
        recorded(failing)
    given = chosen_at_last(desk, calls(1, 2), after)
    assert sorted(map(str, given.values())) == ["n0", "n1"]
    remembered(store, rules)
    in_order(store, decisions=2)


def give_up() -> None:
    raise GivenUp


def with_objects(number: int, *nodes: int, fresh: int | None = None) -> WaitingRequest:
    """A call in the full form, of a scheduler that does not know who has left.

    fresh: on this node one more pod would leave, which the state does not have yet.
    """
    offered: dict[str, Any] = {
        f"n{i}": {
            "Pods": [a_pod(f"low-{i}").priority(1).cpu(4).on(f"n{i}").pod],
            "NumPDBViolations": 0,
        }
        for i in nodes
    }
    if fresh is not None:
        pod = a_pod(f"fresh-{fresh}").priority(1).cpu(1).on(f"n{fresh}").pod
        offered[f"n{fresh}"]["Pods"].append(pod)
    body = msgspec.json.encode({"Pod": waiting(number), "NodeNameToVictims": offered})
    return _question(
        PreemptCall(
            request=read_preempt(body),
            body=body,
            mode=CallMode.ENFORCE,
            caller="",
            arrived_ms=NOW_MS,
            seconds=60,
        )
    )


def left(store: Store, *pods: str) -> None:
    """A follower has seen that pods are gone."""
    gone = [("Pod", f"default/{name}", None) for name in pods]
    store.record.follow("default", [gone], at_ms=NOW_MS, source="test", actor="ann")


def pods_of(store: Store) -> set[str]:
    found = (obj for obj in store.state.load("default").objects if type(obj) is Pod)
    return {pod.metadata.name for pod in found}


def test_a_victim_that_is_gone_does_not_come_back(store: Store, decider: MakeDecider) -> None:
    """Its uid was there and has left: no follower would ever see it leave again."""
    left(store, "low-0")
    desk = decider(store)
    assert chosen(desk.decide(with_objects(0, 0, 1))) == {"default/w0": "n1"}
    assert "low-0" not in pods_of(store)
    in_order(store, decisions=1)


def test_a_victim_that_the_state_has_not_seen_yet_is_taken_over(
    store: Store, decider: MakeDecider
) -> None:
    """Also where there is a candidate all of whose victims it has."""
    asked = with_objects(0, 0, 1, fresh=1)
    assert chosen(decider(store).decide(asked)) == {"default/w0": "n0"}
    assert "fresh-1" in pods_of(store)
    in_order(store, decisions=1)


def test_after_a_call_that_brings_victims_the_next_are_asked_for_theirs_first(
    store: Store, monkeypatch: pytest.MonkeyPatch, decider: MakeDecider
) -> None:
    """The first is decided in vain before its victim is looked for, those after it once each."""
    made: list[str] = []

    def counted(snapshot: Snapshot, rules: RuleSet, preemptor: str, **options: Any) -> Decision:
        made.append(preemptor)
        return decide(snapshot, rules, preemptor, **options)

    monkeypatch.setattr("policy.server.extender.deciding.decide", counted)
    desk = decider(store)
    asked = [with_objects(i, i, fresh=i) for i in range(3)]
    assert chosen(*sent(desk, asked)) == {f"default/w{i}": f"n{i}" for i in range(3)}
    assert made == ["default/w0", "default/w0", "default/w1", "default/w2"]
    in_order(store, decisions=3)


def test_nobody_is_evicted_for_a_pod_that_is_gone(store: Store, decider: MakeDecider) -> None:
    """No candidate is answered; what would have been decided for it is recorded."""
    left(store, "w0")
    desk = decider(store)
    asked = with_objects(0, 1)
    with pytest.raises(PodsMoved, match="gone are `default/w0`"):
        recorded(desk.decide(asked))  # that it has left is known where it would be recorded
    answered = recorded(desk.decide(asked))
    assert choice(answered) == ("default/w0", "n1")
    assert _said(answered).body == b'{"NodeNameToMetaVictims":{}}'
    stored = store.read.decision(answered.recorded.decision_id)
    assert stored.served is not None
    assert (stored.served.answer, stored.served.failure) == (CallAnswer.NONE, "the pod is gone")
    assert stored.row.revision is None
    desk.settle()
    assert {"w0", "low-1"} & pods_of(store) == {"low-1"}
    in_order(store, decisions=1)


def test_what_shares_a_transaction_with_a_pod_that_is_gone_is_decided_again(
    store: Store, decider: MakeDecider
) -> None:
    """Nothing of it is recorded; the next calls of that pod are decided at once."""
    left(store, "w0")
    desk = decider(store)
    asked = calls(1, 0, 2)
    given = chosen_at_last(desk, asked, sent(desk, asked))
    assert given == {"default/w0": "n1", "default/w1": "n0", "default/w2": "n1"}
    assert "w0" not in pods_of(store)
    assert chosen(*sent(desk, calls(0, 3))) == {"default/w0": "n2", "default/w3": "n2"}
    in_order(store, decisions=5)


def test_a_call_that_changes_nothing_is_recorded_when_its_pod_is_gone(
    store: Store, decider: MakeDecider
) -> None:
    """In shadow mode, or answered before: the pod is there for the decision alone."""
    desk = decider(store)
    left(store, "w0", "low-0")
    asked = replace(with_objects(0, 0, 1), effective=False)
    assert choice(desk.record_late(asked)) == ("default/w0", "n1")
    assert pods_of(store) & {"w0", "low-0"} == set()
    in_order(store, decisions=1)


def test_a_call_that_changes_nothing_leaves_its_pod_where_it_is_bound_by_now(
    store: Store, decider: MakeDecider
) -> None:
    """A follower would not see it bound a second time."""
    desk = decider(store)
    bound = msgspec.structs.replace(
        waiting(0), spec=msgspec.structs.replace(waiting(0).spec, node_name="n1")
    )
    store.record.follow(
        "default", [[("Pod", "default/w0", bound)]], at_ms=NOW_MS, source="test", actor="ann"
    )
    asked = replace(with_objects(0, 2), effective=False)
    assert choice(desk.record_late(asked)) == ("default/w0", "n2")
    # At once, and not when it looks around, which a killed process does not live to do.
    found = [obj for obj in store.state.load("default").objects if obj.metadata.name == "w0"]
    assert found == [bound]
    in_order(store, decisions=1)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("bound", "the pod is bound, or being deleted"),
        ("being deleted", "the pod is bound, or being deleted"),
        ("replaced", "the pod is gone"),
    ],
)
def test_no_pod_is_evicted_for_one_that_needs_no_room(
    store: Store, decider: MakeDecider, how: str, told: str
) -> None:
    """The state knows better than the call: it stays as it is, and the record says why."""
    desk, pod = decider(store), waiting(0)
    if how == "bound":
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name="n1"))
    elif how == "being deleted":
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T10:00:00Z")
        pod = msgspec.structs.replace(pod, metadata=meta)
    else:  # the record never had the pod that the call is for
        later = a_pod("w0").created(1).pod.metadata
        pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(later, uid="uid-later"))
    store.record.follow(
        "default", [[("Pod", "default/w0", pod)]], at_ms=NOW_MS, source="test", actor="ann"
    )
    desk.refresh()
    answered = recorded(desk.decide(with_objects(0, 2)))
    assert (answered.answer, answered.decision.node) == (CallAnswer.NONE, "n2")
    desk.settle()
    stored = store.read.decision(1)
    assert stored.served is not None
    assert (stored.served.answer, stored.served.failure) == (CallAnswer.NONE, told)
    found = {obj.metadata.name: obj for obj in store.state.load("default").objects}
    assert (found["w0"], "low-2" in found) == (pod, True)
    in_order(store, decisions=1)


def test_before_the_first_call_nothing_is_recorded(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    decider: MakeDecider,
) -> None:
    """Warming up changes nothing, and calls are decided as well if it fails."""
    heads = store.ledger.heads()
    desk = decider(store)
    loaded = store.state.load("default")
    assert store.ledger.heads() == heads
    assert desk.state.snapshot.state_digest == loaded.state_digest
    assert chosen(*sent(desk, calls(0))) == {"default/w0": "n0"}
    desk.settle()

    def failing(*_: object) -> None:
        raise AssertionError("no pod like it")

    monkeypatch.setattr("policy.server.extender.deciding.warmed", failing)
    assert chosen(*sent(decider(store), calls(1))) == {"default/w1": "n1"}
    assert [record.message for record in caplog.records] == [
        "the first call will be slower than later ones"
    ]
