"""`policy state`"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.cluster.digest import HistoryFigures
    from policy.cluster.objects import ClusterObject
    from policy.store import DecisionRow, SessionRow, Store
    from policy.store.state.past import StoredObject

_Function = TypeVar("_Function", bound=Callable[..., Any])

_DECISION: Final = "decision:"

KINDS: Final[Mapping[str, str]] = {
    "nodes": "Node",
    "pods": "Pod",
    "pdb": "PodDisruptionBudget",
    "priorityclasses": "PriorityClass",
    "namespaces": "Namespace",
    "podgroups": "PodGroup",
    "queues": "Queue",
    "schedulingpodgroups": "SchedulingPodGroup",
    "workloads": "Workload",
    "resourcequotas": "ResourceQuota",
    "pv": "PersistentVolume",
    "pvc": "PersistentVolumeClaim",
    "csinodes": "CSINode",
    "storageclasses": "StorageClass",
    "csidrivers": "CSIDriver",
    "csistoragecapacities": "CSIStorageCapacity",
    "services": "Service",
    "replicationcontrollers": "ReplicationController",
    "replicasets": "ReplicaSet",
    "statefulsets": "StatefulSet",
    "resourceclaims": "ResourceClaim",
}
"""Kinds as kubectl names them."""

_SHORT: Final = {"no": "Node", "po": "Pod", "pc": "PriorityClass", "ns": "Namespace"}


def at_option(function: _Function) -> _Function:
    """`--at REVISION|TIME|decision:ID|group:ID`"""
    return click.option(
        "--at",
        metavar="REVISION|TIME|decision:ID|group:ID",
        help="The state at a revision, at a time (ISO 8601, `yesterday 14:02`, or `7d` before now),"
        " or the one that a decision or a cycle of a pod group was made on; the newest by default.",
    )(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A recorded decision, or cycle of a pod group, as others begin where it did."""

    name: str  #: `decision 3` or `group:3`
    row: DecisionRow | SessionRow
    history: HistoryFigures | None  #: the figures of the past that it read


def made_at(store: Store, text: str | None) -> Made | None:
    """The decision or cycle that `--at` names; None where it names none. Raises StoreError."""
    from policy.cli import groups_view
    from policy.store.record.groups import document_of

    if text is None:
        return None
    if text.startswith(_DECISION):
        found = store.read.decision(options.decision_id(text.removeprefix(_DECISION)))
        name = f"decision {found.row.id}"
        return Made(name=name, row=found.row, history=found.record.history)
    number = options.group_id(text)
    if number is None:
        return None
    cycle = groups_view.cycle(store, number)
    name, history = f"{options.GROUP}{number}", document_of(cycle).get("history")
    return Made(name=name, row=cycle.row, history=history)


def cluster_at(store: Store, cluster: str | None, made: Made | None) -> str:
    """The cluster that is looked at: that of the decision of `--at`, where none is named."""
    if cluster is None and made is not None:
        return made.row.cluster
    return session.cluster_of(store, cluster)


def revision_at(store: Store, cluster: str, text: str | None) -> int:
    """The revision that `--at` means. Raises StoreError, click.BadParameter."""
    from policy.store import StoreError

    if text is None:
        return store.state.head_revision(cluster)
    if (made := made_at(store, text)) is not None:
        row = made.row
        if row.cluster != cluster:
            raise StoreError(
                f"{made.name} is one of cluster `{row.cluster}`",
                help=f"give `--cluster {row.cluster}`",
            )
        return row.base_revision
    if re.fullmatch(r"[0-9]{1,18}", text):
        return int(text)
    context = click.get_current_context()
    param = next(p for p in context.command.params if p.name == "at")
    instant = options.millis(options.instant(context, param, text))
    assert instant is not None  # the text is there
    found = store.state.revision_at(cluster, instant)
    if found == 0:
        raise StoreError(
            f"cluster `{cluster}` had no state yet at `{text}`",
            help="`policy state revisions` lists since when it is known",
        )
    return found


@click.group("state")
def group() -> None:
    """Look at the cluster as it is, or as it was at any revision.

    \b
    Example:
      policy state show
    """


@group.command("show")
@click.argument("kind", metavar="[KIND]", required=False)
@click.argument("name", metavar="[NAME]", required=False)
@at_option
@options.db_option
@options.cluster_option
@click.option("-n", "--namespace", metavar="NAME", help="Only objects of this namespace.")
@options.output_option
def show(
    kind: str | None,
    name: str | None,
    at: str | None,
    db: str,
    cluster: str | None,
    namespace: str | None,
    form: str,
) -> int:
    """Print the cluster as it was: how much there is, the objects of a kind, or one of them.

    KIND is a name that kubectl knows (pods, nodes, pdb, ...); a namespaced NAME is
    NAMESPACE/NAME, or a name in the namespace of `--namespace` (else `default`). JSON and YAML
    hold whole objects, in a List that `policy import` reads again.

    \b
    Example:
      policy state show
      policy state show nodes --at 1
      policy state show pods --namespace default --at decision:1 --output yaml
    """
    wanted = None if kind is None else _kind(kind)
    _require_namespaced(wanted, name, namespace, form)
    with session.open_store(db) as store:
        of = cluster_at(store, cluster, made_at(store, at))
        revision = revision_at(store, of, at)
        if wanted is None and form in ("table", "csv"):
            counts = store.state.counts_at(of, at=revision)
            lines = [{"kind": k, "objects": n} for k, n in counts.items()]
            output.rows(lines, form, columns=("kind", "objects"), right=("objects",))
            output.say(f"cluster {of} at revision {revision}")
            return Exit.OK
        kinds = KINDS.values() if wanted is None else [wanted]
        key = None if name is None or wanted is None else _key(wanted, name, namespace)
        found = [
            stored
            for one in kinds
            for stored in store.state.objects_at(of, one, at=revision, key=key)
            if namespace is None or stored.object.metadata.namespace == namespace
        ]
    if key is not None and not found:
        output.say(f"no {wanted} `{key}` in cluster {of} at revision {revision}")
        return Exit.ERROR
    _print(found, form, one=key is not None)
    output.say(f"cluster {of} at revision {revision}")
    return Exit.OK


def _kind(text: str) -> str:
    """Raises Misused for a word that names no kind."""
    import difflib

    lowered = text.lower()
    names = {**KINDS, **_SHORT, **{kind.lower(): kind for kind in KINDS.values()}}
    names |= {f"{name}s": kind for name, kind in names.items() if f"{name}s" not in names}
    if lowered in names:
        return names[lowered]
    close = difflib.get_close_matches(lowered, names, n=1)
    hint = f"did you mean `{close[0]}`?" if close else f"there are {', '.join(KINDS)}"
    raise options.Misused(f"`{text}` is no kind that is kept", help=hint)


def _require_namespaced(
    kind: str | None, name: str | None, namespace: str | None, form: str
) -> None:
    """Raises Misused where `--namespace` could choose nothing."""
    from policy.cluster.objects import NAMESPACED

    if namespace is None:
        return
    if kind is None and form in ("table", "csv"):
        options.refuse_beside("counts of all kinds; name a KIND", True, "namespace")
    if kind is not None and kind not in NAMESPACED:
        options.refuse_beside(f"a {kind}, which has no namespace", True, "namespace")
    if name is not None and "/" in name and not name.startswith(f"{namespace}/"):
        options.refuse_beside(f"`{name}`, which names another one", True, "namespace")


def _key(kind: str, name: str, namespace: str | None) -> str:
    from policy.cluster.objects import NAMESPACED

    if kind not in NAMESPACED or "/" in name:
        return name
    return f"{namespace or 'default'}/{name}"


def _print(found: Sequence[StoredObject], form: str, *, one: bool) -> None:
    if form in ("json", "yaml"):
        items = [_manifest(stored.object) for stored in found]
        if one:
            output.document(items[0], form)
        else:
            output.document({"apiVersion": "v1", "kind": "List", "items": items}, form)
    elif form == "jsonl":
        for stored in found:
            output.document(_manifest(stored.object), form)
    else:
        lines = [_line(stored) for stored in found]
        columns = tuple(lines[0]) if lines else ("name",)
        numbers = [name for name in columns if any(type(line[name]) is int for line in lines)]
        output.rows(lines, form, columns=columns, right=numbers)


_API_VERSIONS: Final = {
    "PodDisruptionBudget": "policy/v1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "CSINode": "storage.k8s.io/v1",
    "PodGroup": "scheduling.volcano.sh/v1beta1",
    "Queue": "scheduling.volcano.sh/v1beta1",
    "StorageClass": "storage.k8s.io/v1",
    "CSIDriver": "storage.k8s.io/v1",
    "CSIStorageCapacity": "storage.k8s.io/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "ResourceClaim": "resource.k8s.io/v1",
    "SchedulingPodGroup": "scheduling.k8s.io/v1alpha2",
    "Workload": "scheduling.k8s.io/v1alpha2",
}


_KUBERNETES_KINDS: Final = {"SchedulingPodGroup": "PodGroup"}
"""Kinds that are kept under another name than Kubernetes gives them."""


def _manifest(obj: ClusterObject) -> dict[str, Any]:
    """The object as kubectl would print it."""
    import msgspec

    from policy.cluster.objects import Node, Pod
    from policy.cluster.whole import whole

    kind = type(obj).__name__
    head = {"apiVersion": _api_version(obj), "kind": _KUBERNETES_KINDS.get(kind, kind)}
    content: dict[str, Any] = (
        whole(obj) if isinstance(obj, Pod | Node) else msgspec.to_builtins(obj)
    )
    return {**head, **content}


def _api_version(obj: ClusterObject) -> str:
    """The version of the API whose shape the object has."""
    from policy.cluster.objects import SchedulingPodGroup, Workload

    if isinstance(obj, Workload) and obj.spec.pod_groups is not None:
        return "scheduling.k8s.io/v1alpha1"
    if isinstance(obj, SchedulingPodGroup):
        spec = obj.spec
        objects = spec.disruption_mode is not None and not isinstance(spec.disruption_mode, str)
        if objects or spec.workload_ref or spec.preemption_policy:
            return "scheduling.k8s.io/v1alpha3"
    return _API_VERSIONS.get(type(obj).__name__, "v1")


def _line(stored: StoredObject) -> dict[str, Any]:
    """What people look for first, by kind."""
    from policy.cluster.pod_groups import disruption_mode, min_count

    obj: Any = stored.object
    meta = obj.metadata
    names = (
        {"namespace": meta.namespace, "name": meta.name} if meta.namespace else {"name": meta.name}
    )
    more: dict[str, Any] = {}
    if stored.kind == "Pod":
        more = {
            "node": obj.spec.node_name,
            "nominated": obj.status.nominated_node_name,
            "priority": obj.spec.priority,
            "phase": obj.status.phase,
            "leaving": bool(meta.deletion_timestamp),
        }
    elif stored.kind == "Node":
        allocatable = obj.status.allocatable or {}
        more = {
            "cpu": str(allocatable.get("cpu", "")),
            "memory": str(allocatable.get("memory", "")),
            "unschedulable": obj.spec.unschedulable,
        }
    elif stored.kind == "PriorityClass":
        more = {"value": obj.value}
    elif stored.kind == "PodDisruptionBudget":
        more = {"disruptions_allowed": obj.status.disruptions_allowed}
    elif stored.kind == "SchedulingPodGroup":
        more = {
            "min_count": min_count(obj),
            "priority": obj.spec.priority or 0,
            "disruption_mode": disruption_mode(obj),
        }
    return {**names, **more, "since": stored.valid_from}


@group.command("revisions")
@options.db_option
@options.cluster_option
@options.newest_option
@options.output_option
def revisions(db: str, cluster: str | None, limit: int, form: str) -> int:
    """List the revisions of the cluster, the newest first: when, from what, how much changed.

    \b
    Example:
      policy state revisions
      policy state revisions --limit 5 --output json
    """
    with session.open_store(db) as store:
        found = store.state.revisions(session.cluster_of(store, cluster), limit=limit + 1)
    found, more = found[:limit], len(found) > limit
    lines = [
        {
            "revision": row.number,
            "at": session.instant(row.at_ms),
            "cause": row.cause,
            "source": row.source,
            "put": row.put_count,
            "deleted": row.deleted_count,
            "digest": row.digest,
        }
        for row in found
    ]
    columns = ("revision", "at", "cause", "source", "put", "deleted", "digest")
    output.rows(lines, form, columns=columns, right=("revision", "put", "deleted"))
    output.say_newest(limit, more=more)
    return Exit.OK
