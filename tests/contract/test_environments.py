"""Environments: what is active decides the next decision; the record says since when and why."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import text

from policy.decision.model import Outcome
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import HypotheticalDecision, NotFound, Store, StoreError, TamperKind
from policy.store.journal import StoreJournal
from policy.store.record.environments import ActivationChanged, RuleSetChanged
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_decision,
    a_node,
    a_pod,
    made_on,
)
from tests.contract.test_ledger import tampering

SOFT, STRICT, OTHER = "kube-1.35", "environments/prod", "kube-1.28"


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        pods = [
            a_pod("shop/web", node="n1", cpu="8", uid="web"),
            *(a_pod(f"lab/{n}", priority=9, cpu="8") for n in "abc"),
        ]
        objects = [a_node("n1"), *pods]
        opened.record.import_objects("default", objects, at_ms=NOW, source="dump.json")
        opened.record.create_environment("prod", "default", at_ms=NOW, actor="ann")
        yield opened


def activate(store, name, reason="because", **more):
    rules = RuleSet.load(name)
    return store.record.activate(
        "prod",
        rules=rules,
        reason=reason,
        source=name,
        at_ms=NOW,
        actor="ann",
        **more,
    )


def digest(name):
    return RuleSet.load(name).digest


def scheduler(store, journal=None):
    journal = journal or StoreJournal(
        store, "default", actor="bob", clock=lambda: NOW, environment="prod"
    )
    return Scheduler(journal, RuleSet.load(OTHER), clock=lambda: NOW, seed=0)


def decided(store, step):
    row = store.read.decision(step.recording.decision_id).row
    return row.environment, row.rule_set_digest, row.outcome


def test_an_activation_decides_the_next_decision_of_a_running_process(store):
    """The scheduler goes on; each decision names the environment and the rules active then."""
    activate(store, SOFT)
    cycle = scheduler(store)
    first = cycle.decide("lab/a")
    activate(store, STRICT)
    second = cycle.decide("lab/b")
    store.record.roll_back("prod", reason="too strict", at_ms=NOW, actor="ann")
    third = cycle.decide("lab/c")
    assert [decided(store, step)[:2] for step in (first, second, third)] == [
        ("prod", digest(SOFT)),
        ("prod", digest(STRICT)),
        ("prod", digest(SOFT)),
    ]
    assert store.ledger.verify().ok


class Interrupted(StoreJournal):
    """A journal beside which something happens between a decision and its record."""

    meanwhile: Callable[[], object] | None = None

    def record(self, *arguments, **options):
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            happens()
        return super().record(*arguments, **options)


def test_a_decision_overtaken_by_an_activation_is_made_again(store):
    """No decision is recorded under rules that are not active any more."""
    activate(store, SOFT)
    journal = Interrupted(store, "default", actor="bob", clock=lambda: NOW, environment="prod")
    journal.meanwhile = lambda: activate(store, STRICT)
    step = scheduler(store, journal).decide("lab/a")
    assert decided(store, step)[:2] == ("prod", digest(STRICT))
    assert len(store.read.decisions()) == 1


def test_the_store_refuses_a_decision_under_other_rules_than_the_active_ones(store):
    """Whoever writes: what stands under an environment was decided by its rules."""
    activate(store, SOFT)
    record = {
        "rules": BY_HAND,
        "environment": "prod",
        "actor": "eve",
        "at_ms": NOW,
    }
    with pytest.raises(RuleSetChanged):
        store.record.decision(
            "default", made_on(store, a_decision()), [], expected_revision=1, **record
        )
    assert store.read.decisions() == []
    supposed = HypotheticalDecision(decision=made_on(store, a_decision()))
    store.record.hypothetical("default", [supposed], revision=1, **record)
    assert len(store.read.decisions(hypothetical=None)) == 1


def test_the_active_rule_set_costs_one_small_query(store):
    """As long as nothing is activated, a running process reads one row and no rule set."""
    activate(store, SOFT)
    assert store.read.active_rule_set("prod", unless=digest(SOFT)) is None
    activate(store, STRICT)
    found = store.read.active_rule_set("prod", unless=digest(SOFT))
    assert found is not None
    assert found.digest == digest(STRICT)
    assert RuleSet.from_canonical(found.canonical) == RuleSet.load(STRICT)


def test_rolling_back_again_goes_further_back(store):
    """Three activations, two steps back, and then there is nothing before."""
    for name in (SOFT, OTHER, STRICT):
        activate(store, name)
    for _ in range(2):
        store.record.roll_back("prod", reason="worse", at_ms=NOW, actor="ann")
    with pytest.raises(StoreError, match="no earlier rule set"):
        store.record.roll_back("prod", reason="worse", at_ms=NOW, actor="ann")
    found = [
        (row.rule_set_digest, row.previous_digest, row.source, row.reason)
        for row in reversed(store.read.activations("prod"))
    ]
    assert found == [
        (digest(SOFT), None, SOFT, "because"),
        (digest(OTHER), digest(SOFT), OTHER, "because"),
        (digest(STRICT), digest(OTHER), STRICT, "because"),
        (digest(OTHER), digest(STRICT), "rollback to activation 2", "worse"),
        (digest(SOFT), digest(OTHER), "rollback to activation 1", "worse"),
    ]


def test_after_a_rollback_the_next_activation_starts_from_there(store):
    """What was rolled back is not gone back to."""
    activate(store, SOFT)
    activate(store, STRICT)
    store.record.roll_back("prod", reason="worse", at_ms=NOW, actor="ann")
    activate(store, OTHER)
    back = store.record.roll_back("prod", reason="worse", at_ms=NOW, actor="ann")
    assert back.rule_set_digest == digest(SOFT)


def test_what_is_gone_back_to_is_known_before(store):
    """None at first; then what the next rollback activates, and none again at its end."""
    found = []
    for step in (SOFT, STRICT, None):
        if step is None:
            store.record.roll_back("prod", reason="worse", at_ms=NOW, actor="ann")
        else:
            activate(store, step)
        target = store.read.rollback_target("prod")
        found.append(None if target is None else target.rule_set_digest)
    assert found == [None, digest(SOFT), None]


def refused(change):
    """The words with which a change is refused; "" where it is made."""
    try:
        change()
    except ActivationChanged as exc:
        return exc.message
    return ""


def test_who_saw_another_activation_changes_nothing(store):
    """Neither activates nor rolls back: the error says what is active since when and by whom."""
    first = activate(store, SOFT, expected_activation=0)
    back = {"reason": "worse", "at_ms": NOW, "actor": "bob"}
    second = activate(store, STRICT, expected_activation=first.id)
    words = [
        refused(lambda: activate(store, OTHER, expected_activation=0)),
        refused(lambda: activate(store, OTHER, expected_activation=first.id)),
        refused(lambda: store.record.roll_back("prod", expected_activation=first.id, **back)),
    ]
    at = "2026-09-21T14:13:20Z"
    assert words == [
        f"environment `prod` has changed: `prod` is active since {at}, activated by `ann`"
    ] * len(words)
    assert [row.id for row in store.read.activations("prod")] == [second.id, first.id]
    made = store.record.roll_back("prod", expected_activation=second.id, **back)
    assert made.rule_set_digest == digest(SOFT)


def test_of_those_who_saw_the_same_one_changes_it(store, database_url):
    """The look and the change are one transaction: processes that do it at once do not pass it."""
    seen = activate(store, SOFT).id
    start = Barrier(4)

    def roll_over(rules):
        with Store.open(database_url) as own:
            start.wait()
            return refused(lambda: activate(own, rules, expected_activation=seen))

    with ThreadPoolExecutor(4) as pool:
        words = list(pool.map(roll_over, (STRICT, OTHER, "kube-1.30", "kube-1.31")))
    assert sorted(map(bool, words)) == [False, True, True, True]
    assert len(store.read.activations("prod")) == 2


def test_activations_are_entries_of_the_ledger(store):
    """Creation, activation and rollback stand in the chain, in their order."""
    activate(store, SOFT)
    activate(store, STRICT)
    store.record.roll_back("prod", reason="worse", at_ms=NOW, actor="ann")
    query = "SELECT kind, subject_digest, environment, actor FROM ledger ORDER BY sequence"
    with store.sql(query, trust_connection=True) as found:
        entries = [tuple(row) for row in found]
    assert entries[1:] == [
        ("environment", "", "prod", "ann"),
        ("activation", digest(SOFT), "prod", "ann"),
        ("activation", digest(STRICT), "prod", "ann"),
        ("activation", digest(SOFT), "prod", "ann"),
    ]
    assert store.ledger.verify().ok


@pytest.mark.parametrize(
    ("table", "changes", "subject"),
    [
        ("activations", "reason = 'better'", "activation 1"),
        ("activations", "actor = 'bob'", "activation 1"),
        ("activations", "rule_set_id = previous_rule_set_id", "activation 2"),
        ("environments", "created_by = 'bob'", "environment 1"),
    ],
)
def test_a_changed_activation_is_found_and_named(store, database_url, table, changes, subject):
    """Who activated what and why cannot be rewritten: verification names what was changed."""
    activate(store, SOFT)
    activate(store, STRICT)
    with tampering(database_url) as connection:
        number = subject.split()[1]
        connection.execute(text(f"UPDATE {table} SET {changes} WHERE id = {number}"))
        connection.commit()
    first = store.ledger.verify().findings[0]
    assert (first.harm, first.subject) == (TamperKind.CHANGED, subject)


def test_an_environment_without_rules_decides_nothing(store):
    """It is an error that says what to do, not a default."""
    with pytest.raises(StoreError, match="no active rule set"):
        scheduler(store).decide("lab/a")
    with pytest.raises(NotFound, match="no environment `other`"):
        store.read.active_rule_set("other")
    assert store.read.decisions() == []


def test_a_dry_run_follows_the_active_rules_too(store):
    """Without recording anything, the rules of the environment decide."""
    activate(store, SOFT)
    journal = StoreJournal(store, "default", actor="bob", clock=lambda: NOW, environment="prod")
    cycle = Scheduler(journal, RuleSet.load(OTHER), clock=lambda: NOW, seed=0, dry_run=True)
    step = cycle.decide("lab/a")
    assert (step.decision.rule_set_digest, step.decision.outcome) == (
        digest(SOFT),
        Outcome.PREEMPT,
    )
    assert store.read.decisions() == []
