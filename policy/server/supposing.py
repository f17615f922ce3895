"""What would be decided, with nothing recorded: for one pod now, or after a supposed change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.audit.cascade import foresee, step_line, with_members
from policy.audit.documents import document, instant
from policy.audit.what_if import Supposition, WhatIfError, new_class, suppose
from policy.cluster import canonical
from policy.cluster.names import typed_pod
from policy.cluster.objects import Pod, PriorityClass, key_of, kind_of
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.record import record_of
from policy.groups.decide import decide_group
from policy.manifests import ManifestError, read_dicts, resolve
from policy.preemption.decide import DecisionError, decide, of_cluster
from policy.rules import RulesError, RuleSet
from policy.scheduling.order import head_of, pending
from policy.server import views
from policy.server.http import API, Failure, invalid
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
    try:
        rules = RuleSet.from_canonical(active.canonical)
    except RulesError as exc:
        told = f"this version cannot read the active rules of environment `{environment}`"
        raise Failure(409, "conflict", f"{told}: {exc.problems[0].message}") from exc
    loaded = service.store.state.load(row.cluster)
    now_ms = service.clock()
    needs = rules.history_needs
    history = service.store.read.history(row.cluster, needs, now_ms=now_ms) if needs else None
    snapshot = Snapshot.from_objects(
        loaded.objects, now_ms=now_ms, state_digest=loaded.state_digest, history=history
    )
    return _Basis(cluster=row.cluster, rules=rules, snapshot=snapshot, revision=loaded.revision)


def _pods(
    manifests: Mapping[str, Mapping[str, Any]], snapshot: Snapshot, classes: Mapping[str, int]
) -> list[Pod]:
    """The pods of manifests, as an API server would have admitted them.

    manifests: by their place in the body. Raises Failure.
    """
    known = {**snapshot.priority_classes, **{n: new_class(n, v) for n, v in classes.items()}}
    pods: dict[str, Pod] = {}
    for place, manifest in manifests.items():
        for pod in _pods_of(manifest, place, known.values()):
            key = key_of(pod)
            if key in pods:
                raise invalid("body", [(place, f"pod `{key}` is given twice")])
            pods[key] = pod
    return list(pods.values())


def _pods_of(
    manifest: Mapping[str, Any], place: str, known: Iterable[PriorityClass]
) -> Sequence[Pod]:
    """The pod of a manifest, or those of a List. Raises Failure."""
    try:
        found = read_dicts([{"apiVersion": "v1", "kind": "Pod", **manifest}])
        objects = resolve(found.objects, known_classes=known, places=found.places)
    except ManifestError as exc:
        first = exc.problems[0]
        raise invalid("body", [(place, str(first.of_object))], help=first.help) from exc
    except ValueError as exc:
        raise invalid("body", [(place, str(exc))]) from exc
    pods = [obj for obj in objects if isinstance(obj, Pod)]
    others = [*(kind_of(obj) for obj in objects if not isinstance(obj, Pod)), *found.skipped]
    if found.claims:
        others.append("Event")
    if others:
        told = f"not that of a pod: it holds an object of kind `{others[0]}`"
        raise invalid("body", [(place, told)])
    if not pods:
        raise invalid("body", [(place, "not that of a pod: it holds nothing")])
    if found.repeated:
        raise invalid("body", [(place, f"{next(iter(found.repeated))} is given twice")])
    return pods


def dry_run(
    service: PolicyService, environment: str, *, pod: str | None, manifest: dict[str, Any] | None
) -> dict[str, Any]:
    """What would be decided now for one pod: of the state, or of a manifest.

    A member of a pod group stands for the group where the rules schedule groups, as everywhere.
    """
    basis = _basis(service, environment)
    snapshot = basis.snapshot
    if manifest is not None:
        found = _pods({"manifest": manifest}, snapshot, {})
        if len(found) > 1:
            told = f"it holds {len(found)} pods, and one is decided"
            advice = f"`POST {API}/what-if` decides several, one after the other"
            raise invalid("body", [("manifest", told)], help=advice)
        pod = key_of(found[0])
        if snapshot.pod(pod) is not None:
            advice = "name it in `pod`, or give the new one another name"
            raise Failure(409, "conflict", f"the cluster has a pod `{pod}`", help=advice)
        snapshot = snapshot.apply([("Pod", pod, found[0])])
    pod = typed_pod(pod)
    assert pod is not None  # either of them is given
    waiting = snapshot.pod(pod)
    group = ""
    if waiting is not None and not waiting.spec.node_name:
        group = head_of(pod, snapshot, basis.rules.groups).group
    try:
        with of_cluster(basis.cluster):
            if group:
                cycle = decide_group(snapshot, basis.rules, group, seed=0)
                return _cycle(basis, cycle, environment)
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


def _cycle(basis: _Basis, made: GroupDecision, environment: str) -> dict[str, Any]:
    """A cycle of a pod group that is not recorded."""
    return {
        **canonical.parse(made.canonical.decode()),
        "now": instant(made.now_ms),
        "cluster": basis.cluster,
        "environment": environment,
        "base_revision": basis.revision,
        "digest": made.digest,
    }


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
    placed = {f"manifests[{i}]": manifest for i, manifest in enumerate(manifests)}
    supposition = Supposition(
        pods=_pods(placed, basis.snapshot, priority_classes),
        priority_classes=priority_classes,
        removed_nodes=removed_nodes,
    )
    try:
        with of_cluster(basis.cluster):
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
        "lost": list(supposed.lost),
    }
