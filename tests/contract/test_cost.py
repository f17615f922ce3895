"""What a decision costs: a handful of rows and looks by key, whatever the size of the cluster."""

from __future__ import annotations

import re

import pytest

from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.scheduling.effects import changes_of
from policy.store import Store
from policy.store.tables import METADATA, VERSIONS
from tests.contract.builders import NOW, a_node, a_pod
from tests.contract.plans import plan, statements

RULES = RuleSet.load("kube-1.35")
TABLES = "|".join(table.name for table in VERSIONS.values())


def a_full_cluster(nodes):
    """Full nodes, and a pod for which twelve pods have to leave, wherever it goes."""
    running = [
        a_pod(f"shop/web-{n:03}-{i:02}", node=f"n{n:03}", priority=1, cpu="500m")
        for n in range(nodes)
        for i in range(16)
    ]
    return [
        *(a_node(f"n{n:03}") for n in range(nodes)),
        *running,
        a_pod("team/urgent", priority=100, cpu="6"),
    ]


def decided(store, nodes):
    """Record the decision; the statements that it took."""
    store.record.import_objects("default", a_full_cluster(nodes), at_ms=NOW, source="dump")
    state = store.state.load("default")
    snapshot = Snapshot.from_objects(state.objects, now_ms=NOW, state_digest=state.state_digest)
    decision = decide(snapshot, RULES, "team/urgent")
    assert len(decision.victims) == 12
    with statements(store) as sent:
        store.record.decision(
            "default",
            decision,
            changes_of(snapshot, decision),
            expected_revision=1,
            rules=RULES,
            actor="ann",
            at_ms=NOW,
        )
    return sent


def written(store):
    """Rows of each table, without those of the rule set and the cluster's objects at first."""
    counts = {}
    with store._database.reading() as connection:
        for table in METADATA.sorted_tables:
            query = f"SELECT count(*) FROM {table.name}"
            if table.name in TABLES.split("|"):
                query += " WHERE valid_from > 1"
            counts[table.name] = connection.exec_driver_sql(query).scalar_one()
    return counts


@pytest.mark.parametrize("nodes", [2, 40])
def test_a_decision_writes_a_handful_of_rows(database_url, nodes):
    """Thirteen pods change, so thirteen versions are new; candidates are kept up to ten."""
    with Store.open(database_url) as store:
        decided(store, nodes)
        rows = written(store)
    assert rows["pods"] == 13
    assert rows["victims"] == 12
    assert rows["candidates"] == min(nodes, RULES.audit_candidates)
    assert sum(rows.values()) - rows["candidates"] < 60


def test_a_decision_looks_up_what_it_changes_by_key(database_url):
    """Not all that is true now, however many pods are evicted at once."""
    with Store.open(database_url) as store:
        sent = decided(store, 40)
        looked_up = 0
        for statement, parameters in sent:
            if not re.match(rf"(SELECT|UPDATE)\b.*\b({TABLES})\b", statement, re.DOTALL):
                continue
            single = parameters[0] if isinstance(parameters, list) else parameters
            for step in plan(store, statement, single):
                if re.search(rf"\b(SCAN|SEARCH|on) ({TABLES})\b", step):
                    assert "SCAN" not in step
                    assert "Seq" not in step
                if re.search(rf"SEARCH ({TABLES})\b|Index Cond", step):
                    assert re.search(r"\bkey\b", step)
                    looked_up += 1
    assert looked_up >= 2  # the versions that end, found and ended
