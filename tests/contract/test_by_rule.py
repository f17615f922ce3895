"""Decisions that a rule decided, found by the totals; on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from policy.decision.model import NO_VALUE, Outcome, RuleFired
from policy.store import HypotheticalDecision, InvalidValue, Store
from policy.store.read import by_rule
from policy.store.read.figures import DAY_MS
from tests.contract.builders import BY_HAND, NOW, a_cluster, a_decision, made_on

OTHERWISE = ("eligibility", "otherwise", "allow")
SPARED = ("victims.eligible", "spare", "deny")
DEFAULT = ("victims.eligible", "", "deny")
FORBIDDEN = ("victims.forbid", "spare", "forbid")
WITHOUT = ("victims.eligible", "spare", NO_VALUE)
MADE = (
    # Days from now, rules, candidates of the ranking, outcome.
    (-9, (OTHERWISE, SPARED), 2, Outcome.PREEMPT),
    (-9, (OTHERWISE, FORBIDDEN), 1, Outcome.PREEMPT),
    (-8, (OTHERWISE, DEFAULT), 2, Outcome.PREEMPT),
    (-3, (OTHERWISE, SPARED, DEFAULT), 2, Outcome.NO_CANDIDATE),
    (-3, (OTHERWISE, WITHOUT), 1, Outcome.PREEMPT),
    (0, (OTHERWISE, SPARED), 2, Outcome.PREEMPT),
)
"""One of which a rule had no value: that decided nothing."""
RANKED = "fewest-pdb-violations"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """Decisions of two clusters, and a hypothetical one, which no total counts."""
    with Store.open(database_url) as opened:
        for cluster in ("default", "other"):
            opened.record.import_objects(cluster, a_cluster(), at_ms=1, source="test")
        for seed, (days, rules, candidates, outcome) in enumerate(MADE):
            cluster = "other" if seed == 1 else "default"
            made = a_decision(candidates=candidates, seed=seed, now_ms=NOW + days * DAY_MS)
            fired = tuple(
                RuleFired(section=section, rule=rule, verdict=verdict, reason="", inputs={})
                for section, rule, verdict in rules
            )
            made = replace(made, trace=replace(made.trace, rules=fired), outcome=outcome)
            opened.record.decision(
                cluster,
                made_on(opened, made, cluster),
                [],
                expected_revision=1,
                rules=BY_HAND,
                actor="ann",
                at_ms=NOW + seed,
            )
        supposed = made_on(opened, a_decision(seed=99))
        opened.record.hypothetical(
            "default",
            [HypotheticalDecision(decision=supposed)],
            revision=1,
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW + 99,
        )
        yield opened


EXPECTED = {
    "otherwise": [5, 4, 3, 2, 1, 0],
    "eligibility/otherwise": [5, 4, 3, 2, 1, 0],
    "spare": [5, 3, 1, 0],
    "victims.eligible/spare": [5, 3, 0],
    "victims.forbid/spare": [1],
    "victims.eligible/": [3, 2],
    RANKED: [5, 2, 0],
    f"ranking/{RANKED}": [5, 2, 0],
    "ranking/": [4, 1],
    "victims.forbid/otherwise": [],
    "unknown": [],
}


@pytest.mark.parametrize("few", [0, 1, 2, 100])
def test_a_list_has_the_decisions_that_a_rule_decided(
    store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Whether they are few or many; as many as are counted for the rule."""
    monkeypatch.setattr(by_rule, "_FEW", few)
    found = {
        rule: [row.seed for row in store.read.decisions(rule=rule, limit=10)] for rule in EXPECTED
    }
    assert found == EXPECTED
    counts = store.read.rule_counts(BY_HAND.digest, now_ms=NOW, days=[7])
    counted = {rule: counts.of(*rule.split("/"))[-1] for rule in EXPECTED if "/" in rule}
    assert counted == {rule: len(EXPECTED[rule]) for rule in counted}


@pytest.mark.parametrize("few", [0, 100])
def test_other_filters_and_pages_hold_beside_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Cluster, time, outcome, rule set, hypothetical ones, and where a page begins."""
    monkeypatch.setattr(by_rule, "_FEW", few)
    read = store.read.decisions
    newest = read(rule="spare", limit=1)
    assert [
        [row.seed for row in found]
        for found in (
            read("other", rule="spare"),
            read("default", rule="spare", since_ms=NOW - 4 * DAY_MS),
            read(rule="spare", until_ms=NOW - 4 * DAY_MS),
            read(rule="spare", outcome="preempt"),
            read(rule="spare", rule_set=BY_HAND.digest),
            read(rule="spare", rule_set="kube-1.36"),
            read(rule=RANKED, hypothetical=True),
            read(rule=RANKED, hypothetical=None),
            read(rule="spare", limit=2, before_id=newest[0].id),
        )
    ] == [[1], [5, 3], [1, 0], [5, 1, 0], [5, 3, 1, 0], [], [99], [99, 5, 2, 0], [3, 1]]


def test_a_section_without_a_record_is_refused(store: Store) -> None:
    """Its rules decide as well, but nothing says in which decisions."""
    with pytest.raises(InvalidValue) as refused:
        store.read.decisions(rule="filters/resources")
    assert (refused.value.message, refused.value.help) == (
        "`filters/resources`: of section `filters` it is not recorded which rule decided",
        "`SECTION/ID`, where SECTION is one of"
        " eligibility, ranking, victims.eligible, victims.forbid",
    )
