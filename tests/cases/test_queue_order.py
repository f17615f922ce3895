"""Which pods wait, and in which order they are tried first."""

from __future__ import annotations

import pytest

from policy.rules.ruleset import QueueOrder
from policy.scheduling.order import pending
from tests.support.builders import a_node, a_pod, rule_set, snapshot


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (QueueOrder.ARRIVAL, ["default/high", "default/old", "default/a", "default/b"]),
        (QueueOrder.KEY, ["default/high", "default/a", "default/b", "default/old"]),
    ],
)
def test_pods_of_equal_priority(order: QueueOrder, expected: list[str]) -> None:
    """The one that was created first, or, for a scheduler that has just started, by name."""
    cluster = snapshot(
        a_node("n1"),
        a_pod("b").created(1),
        a_pod("a").created(1),
        a_pod("old").created(60),
        a_pod("high").priority(1),
    )
    assert pending(cluster, order=order) == expected


def test_the_order_is_a_setting_of_the_queue() -> None:
    """Rule files choose it; the shipped ones order by creation."""
    found = rule_set("kube-1.36"), rule_set("kube-1.36", '{"queue": {"order": "key"}}')
    assert [rules.queue.order for rules in found] == [QueueOrder.ARRIVAL, QueueOrder.KEY]
