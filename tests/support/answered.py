"""A cluster whose extender has answered a call, and what a follower sees of that."""

from __future__ import annotations

from typing import Any

import msgspec

from policy.audit.observed.recording import SchedulerRules, record_observed, server_rules
from policy.decision.model import Decision
from policy.manifests import from_dicts
from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim
from policy.rules import RuleSet
from policy.server.extender.call import PreemptCall
from policy.server.extender.deciding import Decider
from policy.server.extender.desk import _question
from policy.server.extender.wire import read_preempt
from policy.store import Store
from policy.store.model.decisions import CallMode
from policy.store.observed import ObservationRow
from tests.support.builders import NOW_MS
from tests.support.recording import recorded, recorder_of

SECOND = 1000


def item(kind: str, name: str, **parts: Any) -> dict[str, Any]:
    within = {} if kind in ("Namespace", "Node") else {"namespace": "shop"}
    meta = {"name": name, "uid": f"uid-{name}", **within}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **parts}


def pod(name: str, priority: int, node: str = "") -> dict[str, Any]:
    spec = {
        "priority": priority,
        "nodeName": node,
        "schedulerName": "default-scheduler",
        "preemptionPolicy": "PreemptLowerPriority",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
    }
    return item("Pod", name, spec=spec, status={"phase": "Running" if node else "Pending"})


HIGH = pod("high", 9)
CLUSTER = [
    item("Namespace", "shop"),
    item("Node", "n1", status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}),
    pod("a", 1, "n1"),
    pod("b", 2, "n1"),
    HIGH,
]


def fill(store: Store) -> None:
    """The cluster, and environment `prod`, whose extender schedulers call."""
    store.record.import_objects("default", list(from_dicts(CLUSTER)), at_ms=NOW_MS, source="t")
    decides(store, "environments/dev")


def decides(store: Store, rules: str) -> None:
    """These shipped rules decide in environment `prod`, which is made."""
    options: dict[str, Any] = {"at_ms": NOW_MS, "actor": "ann"}
    store.record.create_environment("prod", "default", **options)
    store.record.activate("prod", rules=RuleSet.load(rules), reason="t", source=rules, **options)


def answer(
    store: Store, mode: CallMode = CallMode.ENFORCE, *, preemptor: dict[str, Any] = HIGH
) -> Decision:
    """Offer the eviction of `a`."""
    decision = offer(store, "a", mode=mode, preemptor=preemptor)
    assert (decision.node, [v.pod for v in decision.victims]) == ("n1", ["shop/a"])
    return decision


def offer(
    store: Store,
    victim: str,
    *,
    node: str = "n1",
    mode: CallMode = CallMode.ENFORCE,
    preemptor: dict[str, Any] = HIGH,
) -> Decision:
    """Offer the eviction of a pod of a node."""
    offered = {node: {"Pods": [{"UID": f"uid-{victim}"}], "NumPDBViolations": 0}}
    return asked(store, {"Pod": preemptor, "NodeNameToMetaVictims": offered}, mode=mode)


def asked(
    store: Store, args: dict[str, Any], *, mode: CallMode = CallMode.ENFORCE, patience: float = 0.0
) -> Decision:
    """What is decided of a call. patience: as of `PreemptCall`."""
    body = msgspec.json.encode(args)
    call = PreemptCall(
        request=read_preempt(body),
        mode=mode,
        caller="",
        arrived_ms=NOW_MS,
        seconds=60,
        body=body,
        patience=patience,
    )
    with recorder_of(store) as recorder:
        decider = Decider(store, "prod", clock=lambda: NOW_MS, recorder=recorder)
        return recorded(decider.decide(_question(call))).decision


def observe(
    store: Store,
    *victims: str,
    node: str = "n1",
    preemptor: str = "high",
    preemptor_uid: str = "",
    at_ms: int = 0,
) -> ObservationRow:
    """Record what events say of the eviction of these pods for the preemptor."""
    seen = Preemption(
        preemptor=f"shop/{preemptor}",
        preemptor_uid=preemptor_uid or f"uid-{preemptor}",
        preemptor_kind="Pod",
        node=node,
        scheduler="default-scheduler",
        at_ms=at_ms or NOW_MS + SECOND,
        confidence=Confidence.CERTAIN,
        victims=tuple(
            SeenVictim(
                pod=f"shop/{name}",
                uid=f"uid-{name}",
                evidence=(Evidence.EVENT,),
                event_uid=f"event-{name}-{preemptor}",
            )
            for name in victims
        ),
    )
    rules = SchedulerRules(store, "default", lambda: server_rules([], version="1.36"))
    made = {"at_ms": NOW_MS + 2 * SECOND, "source": "t", "actor": "ann"}
    (number,) = record_observed(store, "default", [seen], rules, **made)
    return store.read.observation(number)
