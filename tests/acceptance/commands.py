"""Command lines in this process, and the cluster that most of them are typed for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

NOW = "2026-11-21T00:00:00Z"


class Done(NamedTuple):
    status: int
    out: str
    err: str


Policy = Callable[..., Done]


def a_node(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": spec,
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }


def a_pod(name: str, node: str, priority: int, cpu: int, start: str = "") -> dict[str, Any]:
    namespace, _, own = name.partition("/")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": own, "namespace": namespace, "labels": {"app": own}},
        "spec": {
            **({"nodeName": node} if node else {}),
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"qosClass": "Burstable", **({"startTime": start} if start else {})},
    }


CLUSTER = [
    a_node("n1"),
    a_node("n2"),
    a_node("n3"),
    a_node("n4", unschedulable=True),
    a_pod("shop/a", "n1", 0, 2, "2026-11-20T10:00:00Z"),
    a_pod("shop/b", "n1", 0, 2, "2026-11-20T11:00:00Z"),
    a_pod("bank/c", "n2", 5, 4, "2026-11-20T10:00:00Z"),
    a_pod("bank/d", "n3", 900, 4, "2026-11-20T10:00:00Z"),
    a_pod("shop/low", "", 1, 1),
    a_pod("shop/high", "", 100, 2),
]
