"""Comparison of recorded decisions with other rules: every kind of change, and the sums."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from policy.audit.compare import (
    ComparedVictim,
    Comparison,
    DecisionChange,
    DecisionResult,
    Group,
    Losses,
    RecordedQuestion,
    change_of,
    compare,
    result_of,
    summarise,
)
from policy.audit.compare_documents import report_parts
from policy.audit.compare_page import About, page
from policy.audit.judged import JudgedBefore
from policy.audit.newest import judge_newest, judge_one
from policy.audit.recorded import Comparing, Skipped, questions
from policy.audit.replay import Replayer
from policy.cluster.objects import OwnerReference
from policy.decision.model import Outcome
from policy.preemption.decide import decide
from policy.scheduling.cycle import Scheduler
from policy.store import HypotheticalDecision, NotFound, Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, a_node, a_pdb, a_pod, objects, rule_set, snapshot

KUBE = rule_set("kube-1.35")
WEB = (("web-1", "n1"), ("web-2", "n2"))
GENTLE = rule_set(
    "kube-1.35",
    """{"victims": {"eligible": {"insert": [{"at": "start", "rule": {"id": "gold-stays",
    "verdict": "deny", "reason": "gold pods stay", "when": "victim.priority >= 5"}}]}}}""",
)
PROUD = rule_set(
    "kube-1.35",
    """{"eligibility": {"insert": [{"at": "start", "rule": {"id": "nobody",
    "verdict": "deny", "reason": "nobody preempts", "when": "true"}}]}}""",
)
CLUSTER = (
    a_node("n1").cpu("4").running(a_pod("gold").priority(5).cpu("4").started(60)),
    a_node("n2")
    .cpu("4")
    .running(
        a_pod("low").in_namespace("shop").priority(1).cpu("2").started(10).labelled(app="low"),
        a_pod("gold2").priority(5).cpu("2").started(20),
    ),
    a_pdb("low").in_namespace("shop").selecting(app="low"),
    a_pod("high").priority(10).cpu("4"),
    a_pod("half").priority(10).cpu("2"),
    a_pod("huge").priority(10).cpu("8"),
)


def a_comparison() -> Comparison:
    return Comparison(
        id=1,
        now_ms=NOW_MS,
        preemptor="default/high",
        priority=1,
        change=DecisionChange.SAME,
        before=a_result(),
        after=a_result(),
    )


def a_result(
    outcome: Outcome = Outcome.PREEMPT, node: str | None = "n1", *victims: str
) -> DecisionResult:
    return DecisionResult(
        outcome=outcome,
        node=node,
        victims=tuple(
            ComparedVictim(pod=v, priority=1, lost_seconds=60, pdb_violating=False) for v in victims
        ),
        decided_by="",
        message="",
    )


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (a_result(), a_result(), DecisionChange.SAME),
        (
            a_result(Outcome.PREEMPT, "n1", "a", "b"),
            a_result(Outcome.PREEMPT, "n1", "b", "a"),
            DecisionChange.SAME,
        ),
        (
            a_result(Outcome.NO_CANDIDATE, None),
            a_result(Outcome.NO_CANDIDATE, None),
            DecisionChange.SAME,
        ),
        (a_result(node="n1"), a_result(node="n2"), DecisionChange.OTHER_NODE),
        (a_result(Outcome.BIND, "n1"), a_result(Outcome.BIND, "n2"), DecisionChange.OTHER_NODE),
        (
            a_result(Outcome.PREEMPT, "n1", "a"),
            a_result(Outcome.PREEMPT, "n1", "b"),
            DecisionChange.OTHER_VICTIMS,
        ),
        (a_result(), a_result(Outcome.BIND, "n1"), DecisionChange.NOW_FITS),
        (a_result(Outcome.BIND, "n1"), a_result(), DecisionChange.NOW_PREEMPTS),
        (a_result(), a_result(Outcome.NO_CANDIDATE, None), DecisionChange.NO_LONGER_POSSIBLE),
        (
            a_result(Outcome.BIND, "n1"),
            a_result(Outcome.NOT_ELIGIBLE, None),
            DecisionChange.NO_LONGER_POSSIBLE,
        ),
        (a_result(Outcome.NO_CANDIDATE, None), a_result(), DecisionChange.NEWLY_POSSIBLE),
        (
            a_result(Outcome.NO_CANDIDATE, None),
            a_result(Outcome.NOT_ELIGIBLE, None),
            DecisionChange.OTHER_REASON,
        ),
    ],
)
def test_each_difference_has_its_name(before, after, change):
    """Two results differ in one of eight ways; the order of victims is none of them."""
    assert change_of(before, after) is change


def the_questions(rules=KUBE):
    state = snapshot(*CLUSTER)
    for number, pod in enumerate(("default/high", "default/half", "default/huge"), start=1):
        decision = decide(state, rules, pod)
        yield RecordedQuestion(
            id=number,
            snapshot=state,
            preemptor=pod,
            priority=10,
            seed=0,
            before=result_of(decision),
        )


@pytest.mark.parametrize("rules", [KUBE, GENTLE, PROUD])
def test_rules_compared_with_themselves_are_the_same(rules):
    """No change, and no sum that differs."""
    found = list(compare(the_questions(rules), rules))
    total = summarise(found).total
    assert [c.change for c in found] == [DecisionChange.SAME] * 3
    assert (total.changed, total.before) == (0, total.after)


def test_other_rules_change_node_possibility_and_cost():
    """With gold pods kept, one pod finds no node and another takes the pod with the budget."""
    found = list(compare(the_questions(), GENTLE))
    assert [(c.preemptor, c.change, c.before.node, c.after.node) for c in found] == [
        ("default/high", DecisionChange.NO_LONGER_POSSIBLE, "n1", None),
        ("default/half", DecisionChange.OTHER_VICTIMS, "n2", "n2"),
        ("default/huge", DecisionChange.SAME, None, None),
    ]
    summary = summarise(found)
    before = Losses(preemptions=2, victims=2, pdb_violations=0, lost_seconds=3600 + 1200)
    after = Losses(preemptions=1, victims=1, pdb_violations=1, lost_seconds=600)
    assert summary.total == Group(decisions=3, changed=2, before=before, after=after)
    assert summary.by_priority == {10: summary.total}
    assert summary.by_namespace == {"default": summary.total}
    taken = {
        name: (group.before.victims, group.after.victims)
        for name, group in summary.by_victim_namespace.items()
    }
    assert taken == {"default": (2, 0), "shop": (0, 1)}
    assert {
        priority: group.after.pdb_violations
        for priority, group in summary.by_victim_priority.items()
    } == {1: 1, 5: 0}
    assert sum(summary.changes.values()) == 3


def test_tables_of_a_report_say_what_is_in_no_line_of_them():
    """With it each of them adds up to all decisions; so on the page of the command."""
    found = list(compare(the_questions(), GENTLE))
    same = found[2]
    found += [
        dataclasses.replace(same, preemptor="quiet/a", priority=3),
        dataclasses.replace(same, preemptor="quiet/b", priority=4),
        dataclasses.replace(same, preemptor="silent/a", priority=3),
    ]
    rest = "3 decisions of 2 {} in which nothing differs and no pod leaves"
    parts = [
        (part.title, sum(group.decisions for group in part.groups.values()), part.not_listed)
        for part in report_parts(summarise(found))
    ]
    assert parts == [
        ("in all", 6, ""),
        ("by namespace of the preemptor", 3, rest.format("namespaces")),
        ("by priority of the preemptor", 3, rest.format("priorities")),
        ("by namespace of the victims", 0, ""),
        ("by priority of the victims", 0, ""),
    ]
    assert re.findall(r"Not listed: [^<]*", the_page(more=found[3:])) == [
        f"Not listed: {rest.format(what)}." for what in ("namespaces", "priorities")
    ]


def test_a_pod_that_was_leaving_anyway_loses_nothing():
    """The run time of a victim that already terminates is not this decision's doing."""
    leaving = a_pod("gone").priority(1).cpu("2").started(60).terminating()
    state = snapshot(
        a_node("n1").cpu("4").running(leaving, a_pod("stays").priority(9).cpu("2").started(60)),
        a_pod("high").priority(10).cpu("4"),
    )
    victims = result_of(decide(state, KUBE, "default/high")).victims
    assert {v.pod: v.lost_seconds for v in victims} == {"default/gone": 0, "default/stays": 3600}


# --- out of a store ----------------------------------------------------------------------------


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", objects(*CLUSTER), at_ms=NOW_MS, source="dump.json")
        journal = StoreJournal(opened, "default", actor="ann", clock=lambda: NOW_MS)
        list(Scheduler(journal, KUBE, clock=lambda: NOW_MS, seed=0).run())
        yield opened


def test_recorded_decisions_are_questions_with_their_results(store):
    """State, seed and result of a recorded decision come back as they were."""
    ids = store.read.decision_ids("default")
    asked = list(questions(Replayer(store), ids, KUBE))
    again = [
        result_of(decide(q.snapshot, KUBE, q.preemptor, seed=q.seed))
        for q in asked
        if isinstance(q, RecordedQuestion)
    ]
    assert again == [q.before for q in asked]
    assert len(again) == 3


def test_the_record_compared_with_its_own_rules_is_the_same(store):
    """Nothing that was recorded would come out differently under the same rules."""
    ids = store.read.decision_ids("default")
    assert {c.change for c in Comparing(KUBE)(store, ids)} == {DecisionChange.SAME}
    assert {c.change for c in Comparing(PROUD)(store, ids)} != {DecisionChange.SAME}


def test_the_newest_are_judged_once(store):
    """As the last of all are; what was judged before is not decided again."""
    known = JudgedBefore()
    ids = store.read.decision_ids("default")
    compared = list(Comparing(PROUD)(store, ids))
    first, again = (judge_newest(store, PROUD, limit=9, known=known) for _ in range(2))
    assert (first.decisions, first.cycles, first.recorded_rules) == (3, 0, ["kube-1.35"])
    assert first.summary == summarise(compared)
    assert list(first.changed) == [
        one for one in reversed(compared) if one.change is not DecisionChange.SAME
    ]
    assert [id(one) for one in again.changed] == [id(one) for one in first.changed]
    newest = judge_newest(store, PROUD, limit=1)
    assert newest.summary == summarise(compared[-1:])
    row, opened = judge_one(store, PROUD, ids[0], known=known)
    assert (row.id, opened) == (ids[0], compared[0])
    with pytest.raises(NotFound):
        judge_newest(store, PROUD, cluster="none", limit=1)


def test_few_comparisons_are_kept():
    """Those that were looked at last."""
    known, one = JudgedBefore(), a_comparison()
    for number in range(2001):
        known.keep(("rules", number, "digest"), one)
        known.get(("rules", 0, "digest"))
    kept = [known.get(("rules", number, "digest")) for number in (0, 1, 2, 2000)]
    assert kept == [one, None, one, one]


def test_rules_that_read_the_history_see_again_what_they_saw(database_url):
    """Two decisions for one instant: the second knew of the first, and still does."""
    owner = OwnerReference(kind="ReplicaSet", name="web", uid="web", controller=True)
    pods = [a_pod(name).priority(1).cpu("4").on(node).started(9).pod for name, node in WEB]
    owned = [replace(p, metadata=replace(p.metadata, owner_references=[owner])) for p in pods]
    waiting = [a_pod(f"high-{i}").priority(10).cpu("4").pod for i in (1, 2)]
    rules = rule_set(
        "kube-1.35",
        """{"victims": {"eligible": {"insert": [{"at": "start", "rule": {"id": "not-again",
        "verdict": "deny", "reason": "again",
        "when": "history.preemptedCount(victim.owner, duration('1h')) > 0"}}]}}}""",
    )
    with Store.open(database_url) as store:
        cluster = objects(*(a_node(node).cpu("4") for _, node in WEB), *owned, *waiting)
        store.record.import_objects("default", cluster, at_ms=NOW_MS, source="dump.json")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW_MS)
        list(Scheduler(journal, rules, clock=lambda: NOW_MS, seed=0).run())
        ids = store.read.decision_ids("default")
        found = list(Comparing(rules)(store, ids))
    assert [(c.before.outcome.value, c.change) for c in found] == [
        ("preempt", DecisionChange.SAME),
        ("no-candidate", DecisionChange.SAME),
    ]


def test_a_decision_whose_state_is_gone_is_skipped_and_named(store):
    """What cannot be judged is not counted as anything."""
    from policy.cluster.snapshot import Snapshot

    state = store.state.load("default")
    known = Snapshot.from_objects(state.objects, now_ms=NOW_MS, state_digest=state.state_digest)
    supposed = [("Node", "more", a_node("more").cpu("1").node)]
    decision = decide(known.apply(supposed), KUBE, "default/huge")
    (recorded,) = store.record.hypothetical(
        "default",
        [HypotheticalDecision(decision=decision, supposed=[supposed])],
        revision=state.revision,
        rules=KUBE,
        actor="ann",
        at_ms=NOW_MS,
    )
    (found,) = questions(Replayer(store), [recorded.decision_id], KUBE)
    assert isinstance(found, Skipped)
    assert (found.missing, found.why) == (
        ("hypothetical-state",),
        "it was made on a state that was only supposed",
    )


# --- the page ----------------------------------------------------------------------------------


class Reader(HTMLParser):
    """Tags that are open, and everything that a browser would fetch."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.texts: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in {"meta", "rect", "br"}:
            self.open.append(tag)
        self.fetched += [v for k, v in attrs if k in {"src", "href", "data", "action"}]

    def handle_endtag(self, tag):
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in {"meta", "rect", "br"}:
            self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)


def the_page(rules=GENTLE, name="<b>gentle</b>", more=()):
    found = [*compare(the_questions(), rules), *more]
    about = About(
        recorded_rules=["kube-1.35"],
        rules=name,
        rules_digest=rules.digest,
        cluster="default & co",
        skipped=0,
    )
    changed = [c for c in found if c.change is not DecisionChange.SAME]
    return page(about, summarise(found), changed)


def test_the_page_needs_nothing_else():
    """Well-formed, without script, without anything to fetch."""
    text = the_page()
    reader = Reader()
    reader.feed(text)
    assert (reader.open, reader.fetched) == ([], [])
    assert not reader.tags & {"script", "link", "img", "iframe"}
    assert not re.search(r"https?://|@import|url\(", text)
    assert "\\x" not in text  # our own spaces are no characters of the data


def test_texts_of_the_data_are_no_markup():
    """A name that looks like a tag is shown, not obeyed."""
    reader = Reader()
    reader.feed(the_page())
    told = "".join(reader.texts)
    assert "<b>gentle</b>" in told
    assert "default & co" in told


def test_the_page_shows_every_change_side_by_side():
    """Each decision that differs, with node and victims under both rules."""
    text = the_page()
    for word in ("default/high", "default/half", "preempt on n1", "preempt on n2", "shop/low"):
        assert word in text
    assert text.count("<details>") == 2
