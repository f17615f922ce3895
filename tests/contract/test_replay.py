"""Replay: equal, or the first difference, or what is missing; never something else."""

from __future__ import annotations

import itertools
import os
import signal
from dataclasses import replace
from hashlib import sha256

import msgspec
import pytest
from sqlalchemy import update

from policy.audit.decisions import over
from policy.audit.differences import Difference
from policy.audit.inputs import MissingInput, ReplayVerdict
from policy.audit.past import Past
from policy.audit.replay import replay_all, replayed
from policy.cluster import canonical
from policy.cluster import snapshot as snapshots
from policy.cluster.objects import encode
from policy.cluster.snapshot import Snapshot
from policy.parts import WorkerLost, Workers
from policy.preemption.decide import decide
from policy.scheduling.cycle import Scheduler
from policy.store import Cause, HypotheticalDecision, Store, StoreError
from policy.store.journal import StoreJournal
from policy.store.tables import (
    CYCLES,
    DECISION_TRACES,
    DECISIONS,
    PODS,
    REVISIONS,
    RULE_SETS,
    VERSIONS,
)
from tests.contract.test_ledger import tampering
from tests.support.builders import NOW_MS, a_node, a_pdb, a_pod, objects, rule_set

NODES = VERSIONS["Node"]
RULES = rule_set("kube-1.35")
CLUSTER = objects(
    a_node("n1").cpu("4").running(a_pod("a").priority(1).cpu("2"), a_pod("b").priority(2).cpu("2")),
    a_node("n2").cpu("4").running(a_pod("c").priority(3).cpu("4").labelled(app="c")),
    a_pod("high").priority(10).cpu("4"),
    a_pod("mid").priority(5).cpu("2"),
    a_pod("tiny").priority(0).cpu("8"),
    a_pdb("c").selecting(app="c"),
)


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", CLUSTER, at_ms=NOW_MS, source="dump.json")
        yield opened


def schedule(store, **options):
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW_MS)
    scheduler = Scheduler(journal, RULES, clock=lambda: NOW_MS + 1000, seed=7, **options)
    return [step.recording.decision_id for step in scheduler.run()]


def keep(store, decision, **options):
    """Record a decision about the newest state that changes nothing."""
    recorded = store.record.decision(
        "default",
        decision,
        [],
        expected_revision=store.state.head_revision("default"),
        rules=RULES,
        actor="ann",
        at_ms=NOW_MS,
        **options,
    )
    return recorded.decision_id


def the_decision(store, pod="default/high"):
    """What the rules say on the newest state."""
    state = store.state.load("default")
    snapshot = Snapshot.from_objects(state.objects, now_ms=NOW_MS, state_digest=state.state_digest)
    return decide(snapshot, RULES, pod, seed=3)


def only(results):
    (result,) = results
    return result


def test_a_run_replays_equal_after_the_cluster_moved_on(store):
    """Three decisions, each on the state the last one left, are equal later."""
    ids = schedule(store)
    store.record.change(
        "default",
        [("Node", "n1", None), ("Pod", "default/c", None)],
        at_ms=NOW_MS,
        source="watch",
        cause=Cause.LIVE,
    )
    assert [(r.row.id, r.verdict) for r in replay_all(store, ids)] == [
        (number, ReplayVerdict.EQUAL) for number in ids
    ]


def test_a_past_that_is_packed_on_the_way_is_the_same_past(store, monkeypatch):
    """States have the digests that were recorded, whenever their rows are numbered anew."""
    ids = schedule(store)
    for i in range(3):
        pod = a_pod(f"gone{i}").pod
        for change in (pod, None):
            store.record.change(
                "default",
                [("Pod", f"default/gone{i}", change)],
                at_ms=NOW_MS,
                source="watch",
                cause=Cause.LIVE,
            )
    head = store.state.head_revision("default")
    monkeypatch.setattr(snapshots, "_CHANGES", 0)
    past = Past(store, "default")
    past.expect(head)
    found = [past.at(revision, now_ms=NOW_MS) for revision in range(1, head + 1)]
    kept = [store.state.load("default", at=revision) for revision in range(1, head + 1)]
    assert [s.state_digest for s in found] == [state.state_digest for state in kept]
    assert len(found[-1].pods) == sum(pod is not None for pod in found[-1].pods)
    assert {r.verdict for r in replay_all(store, ids)} == {ReplayVerdict.EQUAL}


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("outcome", lambda d: {"outcome": type(d.outcome).NO_CANDIDATE}),
        ("node", lambda d: {"node": "n9"}),
        ("victims[0].run_seconds", lambda d: {"victims": _longer(d.victims)}),
        ("victims[1]", lambda d: {"victims": d.victims[:1]}),
        ("trace.decidedBy", lambda d: {"trace": replace(d.trace, decided_by="habit")}),
        ("trace.message", lambda d: {"trace": replace(d.trace, message="hm")}),
        ("trace.scores[0]", lambda d: {"trace": replace(d.trace, scores=(("n1", 1, 2),))}),
        ("effects.evict[1]", lambda d: {"effects": replace(d.effects, evict=d.effects.evict[:1])}),
        ("preemptorPriority", lambda d: {"preemptor_priority": 11}),
    ],
)
def test_the_first_difference_is_named(store, path, change):
    """A record that differs in one place differs first in that place."""
    decision = the_decision(store)
    number = keep(store, replace(decision, **change(decision)))
    result = only(replay_all(store, [number]))
    assert (result.verdict, result.difference.path) == (ReplayVerdict.DIFFERENT, path)
    assert result.difference.recorded != result.difference.replayed
    assert result.digest == decision.digest


def _longer(victims):
    first = msgspec.structs.replace(victims[0], run_seconds=victims[0].run_seconds + 5)
    return (first, *victims[1:])


def test_a_difference_that_only_the_digest_holds_is_called_that(store):
    """Where every stored part is equal, the digests are the difference."""
    decision = the_decision(store)
    statuses = decision.trace.filter_statuses
    turned = replace(statuses, nodes=tuple(reversed(list(statuses))))
    other = replace(decision, trace=replace(decision.trace, filter_statuses=turned))
    result = only(replay_all(store, [keep(store, other)]))
    assert result.difference == Difference(
        path="digest", recorded=other.digest, replayed=decision.digest
    )


def test_a_pod_that_its_state_does_not_hold_is_a_difference(store):
    """A record about a pod that was not there differs at its preemptor."""
    number = keep(store, replace(the_decision(store), preemptor="default/nobody"))
    result = only(replay_all(store, [number]))
    assert (result.verdict, result.difference.path) == (ReplayVerdict.DIFFERENT, "preemptor")


# --- what is missing ---------------------------------------------------------------------------


def damaged(store, database_url, *statements):
    with tampering(database_url) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def missing(store, number):
    result = only(replay_all(store, [number]))
    assert (result.verdict, result.digest) == (ReplayVerdict.INCOMPLETE, "")
    return result.missing


def test_an_unknown_engine_version_is_named(store):
    """Decisions of another decision procedure are not replayed with this one."""
    number = keep(store, replace(the_decision(store), engine_version="0"))
    assert missing(store, number) == (MissingInput.ENGINE,)


@pytest.mark.parametrize(
    ("text", "item"),
    [
        (RULES.canonical.replace("kube-1.35", "kube-1.99"), MissingInput.RULE_SET_DIGEST),
        ("{}", MissingInput.RULE_SET_DIGEST),
    ],
)
def test_a_rule_set_text_that_was_changed_is_named(store, database_url, text, item):
    """Rules whose text is not that of their digest are not used."""
    (number, *_) = schedule(store)
    damaged(store, database_url, update(RULE_SETS).values(canonical=text))
    assert missing(store, number) == (item,)


def test_a_rule_set_that_is_gone_is_named(store, database_url):
    """Its decisions are still there, and none of them is taken for replayed."""
    ids = schedule(store)
    damaged(store, database_url, RULE_SETS.delete())
    assert store.read.decision_ids("default") == ids
    assert {missing(store, number) for number in ids} == {(MissingInput.RULE_SET,)}


def test_a_decision_that_cannot_be_read_is_not_passed_over(store, database_url):
    """Where rows item without which it is none, the replay ends and says which decision it was."""
    ids = schedule(store)
    damaged(store, database_url, CYCLES.delete().where(CYCLES.c.id == ids[1]))
    with pytest.raises(StoreError, match=f"decision {ids[1]} is missing rows"):
        list(replay_all(store, ids))


OTHER = encode(a_node("n2").cpu("4").cordoned().node).decode()


@pytest.mark.parametrize(
    "values",
    [{"manifest": OTHER}, {"manifest": OTHER, "digest": sha256(OTHER.encode()).hexdigest()}],
    ids=["manifest", "manifest and digest"],
)
def test_rows_of_the_state_that_were_changed_are_named(store, database_url, values):
    """A state whose rows are not those of its revision makes no decision that counts as one."""
    numbers = schedule(store)
    damaged(store, database_url, update(NODES).where(NODES.c.key == "n2").values(**values))
    assert {missing(store, number) for number in numbers} == {(MissingInput.STATE_DIGEST,)}
    assert {r.missing for r in replay_all(store, numbers)} == {(MissingInput.STATE_DIGEST,)}


def test_a_manifest_that_cannot_be_read_is_named(store, database_url):
    """Text that is no object stops the replay too."""
    (number, *_) = schedule(store)
    changed = update(PODS).where(PODS.c.key == "default/c").values(manifest='{"spec":7}')
    damaged(store, database_url, changed)
    assert missing(store, number) == (MissingInput.STATE_DIGEST,)


def test_a_revision_that_is_gone_is_named(store, database_url):
    """A decision on a revision that is not kept is missing its state."""
    numbers = schedule(store)
    damaged(store, database_url, REVISIONS.delete().where(REVISIONS.c.number == 1))
    assert missing(store, numbers[0]) == (MissingInput.STATE,)


def test_a_state_that_never_was_is_named(store):
    """A hypothetical decision on a supposed state has no state to be replayed on."""
    state = store.state.load("default")
    snapshot = Snapshot.from_objects(state.objects, now_ms=NOW_MS, state_digest=state.state_digest)
    supposed = [("Node", "more", a_node("more").cpu(1).node)]
    decision = decide(snapshot.apply(supposed), RULES, "default/high")
    (recorded,) = store.record.hypothetical(
        "default",
        [HypotheticalDecision(decision=decision, supposed=[supposed])],
        revision=1,
        rules=RULES,
        actor="ann",
        at_ms=NOW_MS,
    )
    assert missing(store, recorded.decision_id) == (MissingInput.HYPOTHETICAL,)


def test_another_time_is_named(store, database_url):
    """A changed `now` does not go with the digest of the snapshot."""
    (number, *_) = schedule(store)
    damaged(store, database_url, update(DECISIONS).values(now_ms=5))
    assert missing(store, number) == (MissingInput.SNAPSHOT,)


def test_history_that_is_not_recorded_is_named(store, database_url):
    """Rules that read figures of the past are not replayed without the figures."""
    rules = rule_set(
        "kube-1.35",
        """{"victims": {"eligible": {"insert": [{"at": "start", "rule": {"id": "not-again",
        "verdict": "deny", "reason": "again",
        "when": "history.preemptedCount(victim.owner, duration('1h')) > 1"}}]}}}""",
    )
    state = store.state.load("default")
    snapshot = Snapshot.from_objects(
        state.objects,
        now_ms=NOW_MS,
        state_digest=state.state_digest,
        history={"preemptedCount/3600": {"default/ReplicaSet/a": 2}},
    )
    decision = decide(snapshot, rules, "default/high")
    recorded = store.record.decision(
        "default",
        decision,
        [],
        expected_revision=1,
        rules=rules,
        actor="ann",
        at_ms=NOW_MS,
    )
    with store.sql("SELECT document FROM decision_traces", trust_connection=True) as found:
        document = canonical.parse(only(found)[0])
    assert document.pop("history") == decision.history
    without = update(DECISION_TRACES).values(document=canonical.text(document))
    damaged(store, database_url, without)
    assert missing(store, recorded.decision_id) == (MissingInput.HISTORY,)


def test_what_a_pruning_left_replays(store):
    """Decisions before the cut are gone; those after it are made again on what was left."""
    clock = itertools.count(NOW_MS, 1000)
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: next(clock))
    scheduler = Scheduler(journal, RULES, clock=lambda: NOW_MS, seed=7)
    ids = [step.recording.decision_id for step in scheduler.run()]
    store.ledger.prune(store.read.decision(ids[1]).row.at_ms, actor="ann", at_ms=NOW_MS + 9000)
    left = store.read.decision_ids("default")
    assert (left, len(ids)) == (ids[1:], 3)
    assert {r.verdict for r in replay_all(store, left)} == {ReplayVerdict.EQUAL}
    wrong = keep(store, replace(the_decision(store, "default/tiny"), node="n9"))
    assert only(replay_all(store, [wrong])).difference.path == "node"


def test_environments_history_and_prunings_together_replay(store):
    """Under two rule sets of an environment, with figures of decisions that were pruned since."""
    first = rule_set(
        "kube-1.35",
        """{"victims": {"eligible": {"insert": [{"at": "start", "rule": {"id": "not-again",
        "verdict": "deny", "reason": "again",
        "when": "history.preemptedCount(victim.owner, duration('1h')) > 0"}}]}}}""",
    )
    store.record.create_environment("prod", "default", at_ms=NOW_MS, actor="ann")
    clock = itertools.count(NOW_MS, 1000)
    ids = []
    for rules in (first, RULES, first):
        store.record.activate(
            "prod",
            rules=rules,
            source="",
            reason="",
            actor="ann",
            at_ms=next(clock),
        )
        journal = StoreJournal(
            store, "default", environment="prod", actor="ann", clock=lambda: next(clock)
        )
        waiting = a_pod(f"more-{len(ids)}").priority(20 + len(ids)).cpu("4").pod
        store.record.import_objects("default", [waiting], at_ms=next(clock), source="dump.json")
        scheduler = Scheduler(journal, first, clock=lambda: next(clock), seed=7)
        ids += [step.recording.decision_id for step in scheduler.run()]
    decided_by = {store.read.decision(number).row.rule_set_digest for number in ids}
    assert decided_by == {first.digest, RULES.digest}
    store.ledger.prune(store.read.decision(ids[2]).row.at_ms, actor="ann", at_ms=next(clock))
    left = store.read.decision_ids("default")
    told = store.read.frozen(left).values()
    figures = [frozen.history for frozen in told if frozen.history is not None]
    assert left == ids[2:]
    assert any(counts for read in figures for counts in read.values())
    assert {r.verdict for r in replay_all(store, left)} == {ReplayVerdict.EQUAL}
    assert store.ledger.verify().ok


# --- many --------------------------------------------------------------------------------------


def test_several_processes_say_what_one_says(store, database_url):
    """Contiguous parts in two processes give one result per decision, in order, the same ones."""
    decision = the_decision(store)
    wrong = keep(store, replace(decision, node="n9"))
    for _ in range(210):
        keep(store, decision)
    schedule(store)
    ids = store.read.decision_ids("default")
    alone = list(replay_all(store, ids))
    assert list(over(database_url, ids, replayed)) == alone
    assert list(over(database_url, ids, replayed, Workers(jobs=2))) == alone
    differ = [r.row.id for r in alone if r.verdict is not ReplayVerdict.EQUAL]
    assert (len(alone), differ) == (len(ids), [wrong])


def test_an_error_in_a_process_is_raised_here(store, database_url):
    """What goes wrong elsewhere is not lost."""
    decision = the_decision(store)
    for _ in range(200):
        keep(store, decision)
    ids = store.read.decision_ids("default")
    with pytest.raises(ZeroDivisionError):
        list(over(database_url, ids, _failing, Workers(jobs=2)))


def _failing(replayer, ids):
    yield 1 // 0


def test_a_process_that_is_always_killed_is_an_error(store, database_url):
    """A part without its end is no result."""
    decision = the_decision(store)
    for _ in range(200):
        keep(store, decision)
    ids = store.read.decision_ids("default")
    with pytest.raises(WorkerLost):
        list(over(database_url, ids, _dying, Workers(jobs=2)))


def _dying(replayer, ids):
    yield ids[0]
    os.kill(os.getpid(), signal.SIGKILL)
