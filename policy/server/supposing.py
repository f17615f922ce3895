"""What would be decided, with nothing recorded: for one pod now, or after a supposed change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.audit.cascade import foresee, step_line, with_members
from policy.audit.documents import document
from policy.audit.what_if import Supposition, WhatIfError, new_class, suppose
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.decision.record import record_of
from policy.manifests import ManifestError, read_dicts, resolve
from policy.preemption.decide import DecisionError, decide
from policy.rules import RuleSet
from policy.scheduling.order import pending
from policy.server import views
from policy.server.http import Failure
from policy.server.service import PolicyService
from policy.store import StoredDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What decides in an environment now, and on which state."""

    cluster: str
    rules: RuleSet
    snapshot: Snapshot
    revision: int


def _basis(service: PolicyService, environment: str) -> _Basis:
    row = service.store.read.environment(environment)
    active = service.store.read.active_rule_set(environment)
    assert active is not None  # what was active before is not given
    if active.batch:
        message = f"environment `{environment}` holds rules of batch sessions"
        raise Failure(400, "invalid", message)
    rules = RuleSet.from_canonical(active.canonical)
    loaded = service.store.state.load(row.cluster)
    now_ms = service.clock()
    needs = rules.history_needs
    history = service.store.read.history(row.cluster, needs, now_ms=now_ms) if needs else None
    snapshot = Snapshot.from_objects(
        loaded.objects, now_ms=now_ms, state_digest=loaded.state_digest, history=history
    )
    return _Basis(cluster=row.cluster, rules=rules, snapshot=snapshot, revision=loaded.revision)


def _pods(
    manifests: Sequence[Mapping[str, Any]], snapshot: Snapshot, classes: Mapping[str, int]
) -> list[Pod]:
    """The pods of manifests, as an API server would have admitted them. Raises Failure."""
    known = {**snapshot.priority_classes, **{n: new_class(n, v) for n, v in classes.items()}}
    try:
        found = read_dicts([{"apiVersion": "v1", "kind": "Pod", **one} for one in manifests])
        objects = resolve(found.objects, known_classes=known.values(), places=found.places)
    except (ManifestError, ValueError) as exc:
        raise Failure(400, "invalid", f"body: {exc}") from exc
    pods = [obj for obj in objects if isinstance(obj, Pod)]
    if len(pods) < len(manifests):
        raise Failure(400, "invalid", "body: a manifest is not that of a pod")
    return pods


def dry_run(
    service: PolicyService, environment: str, *, pod: str | None, manifest: dict[str, Any] | None
) -> dict[str, Any]:
    """What would be decided now for one pod: of the state, or of a manifest."""
    basis = _basis(service, environment)
    snapshot = basis.snapshot
    if manifest is not None:
        (found,) = _pods([manifest], snapshot, {})
        pod = views.pod_key(found)
        snapshot = snapshot.apply([("Pod", pod, found)])
    assert pod is not None  # either of them is given
    try:
        made = decide(snapshot, basis.rules, pod)
    except DecisionError as exc:
        raise Failure(409, "conflict", str(exc)) from exc
    stored = StoredDecision.unsaved(
        record_of(made),
        cluster=basis.cluster,
        environment=environment,
        base_revision=basis.revision,
        at_ms=snapshot.now_ms,
        actor="",
    )
    return {**document(stored), "explanation": views.explanation(stored)}


def what_if(
    service: PolicyService,
    environment: str,
    *,
    pods: Sequence[str],
    manifests: Sequence[dict[str, Any]],
    priority_classes: Mapping[str, int],
    removed_nodes: Sequence[str],
    depth: int,
) -> dict[str, Any]:
    """The decisions that would follow, as `policy what-if` shows them."""
    basis = _basis(service, environment)
    supposition = Supposition(
        pods=_pods(manifests, basis.snapshot, priority_classes),
        priority_classes=priority_classes,
        removed_nodes=removed_nodes,
    )
    try:
        supposed = suppose(basis.snapshot, supposition)
        named = [pod if "/" in pod else f"default/{pod}" for pod in pods]
        sought = [*with_members(supposed.snapshot, basis.rules, named), *supposed.waiting]
        if not sought and not (manifests or removed_nodes):
            sought = pending(supposed.snapshot, order=basis.rules.queue.order)
        steps = foresee(supposed.snapshot, basis.rules, sought, depth=depth, seed=0)
    except (WhatIfError, DecisionError) as exc:
        raise Failure(409, "conflict", str(exc), help=getattr(exc, "help", "")) from exc
    return {
        "cluster": basis.cluster,
        "revision": basis.revision,
        "rules": basis.rules.name,
        "rule_set_digest": basis.rules.digest,
        "steps": [step_line(step) for step in steps],
    }
