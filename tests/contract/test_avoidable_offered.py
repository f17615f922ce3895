"""What would have spared a victim that a scheduler had offered."""

from __future__ import annotations

from policy.audit.avoidable import AlternativeKind, Cost, Counterfactual, avoidable
from policy.manifests import from_dicts
from policy.store import Store
from tests.support.answered import CLUSTER, SECOND, answer, fill, item, pod
from tests.support.builders import NOW_MS

CHEAPER = [
    item("Node", "n2", status={"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "9"}}),
    pod("c", 0, "n2"),
]
"""What the rules would take if they looked for a node themselves."""


def test_other_rules_choose_among_what_was_offered(database_url: str) -> None:
    """The active ones decide as they did; what changes the offer itself is not tried."""
    with Store.open(database_url) as store:
        fill(store)
        objects = list(from_dicts([*CLUSTER, *CHEAPER]))
        store.record.import_objects("default", objects, at_ms=NOW_MS + SECOND, source="t")
        answer(store)
        found = avoidable(store, 1)
    taken = Cost(
        outcome="preempt",
        node="n1",
        victims=("shop/a",),
        run_seconds=0,
        pdb_violations=0,
        highest_priority=1,
    )
    same = Counterfactual(kind=None, what="prod (dev)", spared=False, instead=taken)
    assert (found.taken, found.environments) == (taken, (same,))
    others = {one.instead.node for one in found.rules if one.instead is not None}
    assert others <= {"n1", None}
    assert {one.kind for one in found.changes} <= {AlternativeKind.PARAMETER, AlternativeKind.RULE}
    assert found.not_possible == (
        "Another budget, priority or node was not tried: what the scheduler would have offered"
        " then is not known.",
    )
