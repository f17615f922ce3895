"""Recorded cycles of pod groups under other rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from policy.audit.compare import Comparison, DecisionChange, summarise
from policy.audit.compare_page import About, page
from policy.audit.group_compare import ComparingCycles
from policy.audit.recorded import Comparing, Skipped
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.groups import a_group, of_group

KUBE = RuleSet.load("kube-1.36-groups")
SAFE = RuleSet.load("groups-safe")
PROUD = RuleSet.load(
    "kube-1.36-groups",
    overrides={
        "groups": {
            "eligibility": {
                "insert": [
                    {
                        "at": "start",
                        "rule": {"id": "no-groups", "verdict": "deny", "when": "true"},
                    }
                ]
            }
        }
    },
)
CLUSTER = (
    a_node("n1").cpu(4).running(a_pod("large").priority(1).cpu(4).started(90)),
    a_node("n2")
    .cpu(4)
    .running(
        a_pod("s1").priority(1).cpu(2).started(10), a_pod("s2").priority(1).cpu(2).started(10)
    ),
    of_group(a_pod("m0").priority(50).cpu(4), "train"),
    a_group("train", priority=100, least=1),
)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", objects(*CLUSTER), at_ms=NOW_MS, source="test")
        yield opened


def decided(store: Store, rules: RuleSet = KUBE) -> None:
    journal = StoreJournal(store, "default", actor="test", clock=lambda: NOW_MS)
    scheduler = Scheduler(journal, rules, clock=lambda: NOW_MS, seed=0)
    scheduler.decide_group("default/train")


def compared(store: Store, rules: RuleSet) -> Any:
    ids = [row.id for row in store.read.sessions(kind="group")]
    (found,) = ComparingCycles(rules)(store, ids)
    return found


def gone(found: Comparison) -> list[set[str]]:
    return [{v.pod for v in side.victims} for side in (found.before, found.after)]


def test_other_victims_under_other_rules(store: Store) -> None:
    """`groups-safe` evicts one large pod instead of two small ones; losses are summed up."""
    decided(store)
    found = compared(store, SAFE)
    assert isinstance(found, Comparison)
    assert (found.id, found.preemptor, found.priority, found.change, gone(found)) == (
        "group:1",
        "default/train",
        100,
        DecisionChange.OTHER_VICTIMS,
        [{"default/s1", "default/s2"}, {"default/large"}],
    )
    summary = summarise([found])
    total = summary.total
    assert (total.decisions, total.changed, total.before.victims, total.after.victims) == (
        1,
        1,
        2,
        1,
    )
    about = About(recorded_rules=("a",), rules="b", rules_digest="c", cluster="default", skipped=0)
    assert "default/large" in page(about, summary, [found])


def test_the_same_rules_change_nothing(store: Store) -> None:
    decided(store)
    assert compared(store, KUBE).change is DecisionChange.SAME


def test_a_group_that_no_longer_starts(store: Store) -> None:
    """Other rules forbid its preemption."""
    decided(store)
    found = compared(store, PROUD)
    assert (found.change, found.after.outcome) == (
        DecisionChange.NO_LONGER_POSSIBLE,
        "unschedulable",
    )


def test_other_nominations_are_a_difference(store: Store) -> None:
    """The victims are the same, and one rule set promises the room."""
    promising = RuleSet.load("kube-1.36-groups", overrides={"groups": {"nominations": "placed"}})
    decided(store)
    found = compared(store, promising)
    assert (found.change, found.before.promises, found.after.promises) == (
        DecisionChange.OTHER_NOMINATIONS,
        (),
        (("default/m0", "n2"),),
    )


def test_rules_without_groups_cannot_judge_a_cycle(store: Store) -> None:
    """It is said, and counted apart."""
    decided(store)
    found = compared(store, RuleSet.load("kube-1.36"))
    assert (found.missing, found.why) == (
        ("pod-groups",),
        "one of the rule sets schedules its pod group as one, the other does not: rule set"
        " `kube-1.36` does not schedule pod groups",
    )


def test_rules_with_groups_cannot_judge_one_member(store: Store) -> None:
    """The decision of a single pod that is a member has no counterpart."""
    rules = RuleSet.load("kube-1.36")
    journal = StoreJournal(store, "default", actor="test", clock=lambda: NOW_MS)
    Scheduler(journal, rules, clock=lambda: NOW_MS, seed=0).decide("default/m0")
    (found,) = Comparing(KUBE)(store, [1])
    assert isinstance(found, Skipped)
    assert found.detail == (
        "`kube-1.36-groups` schedules pod group `default/train` as one, not pod by pod"
    )
