"""Pods that a scheduler's request knows better than the recorded state does.

The state may be older than the request: a pod that was made a second ago, or one that was bound
since. Then the request's object counts, and is recorded as a revision of its own before the
decision that reads it, so that the decision can be made again.

Or the state is the newer one: a pod that has left it does not come back, whoever still offers it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

import msgspec
import numpy as np

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE
from policy.manifests import ManifestError, read_dicts, resolve
from policy.preemption.offers import rows_of
from policy.server.extender.folding import folded
from policy.server.extender.wire import BadRequest, PreemptRequest, key_of
from policy.store.state.around import PodId
from policy.typed import UNDECODABLE, prepared, undecodable

_POD: Final = msgspec.json.Decoder(prepared(Pod))


class BodyNeeded(Exception):
    """Objects of victims are to be read, or compared, and the body that has them is not here."""


Gone = Callable[[Collection[PodId]], Collection[PodId]]
"""Gives those of the pods that have left the cluster."""


def preemptor_brought(
    snapshot: Snapshot, request: PreemptRequest
) -> tuple[list[Change], str | None]:
    """The pod that asks, where it is to be taken over, and its uid where the state has it not.

    Such a pod is a new one, or one that has left. Raises BadRequest where it cannot be read.
    """
    known = snapshot.pod(request.key)
    if known is not None and _sent_as_known(known, request.preemptor, of=_deciding):
        return [], None
    preemptor = _read(request.preemptor, snapshot)
    if isinstance(preemptor, str):
        raise BadRequest(f"`Pod`: {preemptor}")
    if known is not None and _deciding(known) == _deciding(preemptor):
        return [], None
    uid = preemptor.metadata.uid
    other = known is None or known.metadata.uid != uid
    return [("Pod", request.key, preemptor)], uid if other else None


def victims_brought(
    snapshot: Snapshot, request: PreemptRequest, body: bytes, *, gone: Gone
) -> list[Change]:
    """The victims to be taken over from the request.

    Those that are gone do not come back. A victim whose object cannot be read is not taken over;
    who is unknown is never evicted. body: of the request; where it is empty, and objects of victims
    have to be read, raises BodyNeeded.
    """
    unknown = _unknown(snapshot, request) if request.full else []
    if not unknown:
        return []
    if not body:
        raise BodyNeeded
    sent = request.objects(body)
    offered = ((uid, bytes(sent[node][place])) for node, place, uid in unknown)
    pods = {key_of(pod): (uid, pod) for uid, pod in offered}
    left = gone([(key, uid) for key, (uid, _) in pods.items()])
    read = {key: _read(pod, snapshot) for key, (uid, pod) in pods.items() if (key, uid) not in left}
    return [
        ("Pod", key, pod)
        for key, pod in read.items()
        if isinstance(pod, Pod) and not is_past(pod, snapshot.pod(key))
    ]


def is_past(sent: Pod, known: Pod | None) -> bool:
    """Has the state a later pod of that name, or the same one when it had ended?"""
    if known is None:
        return False
    if known.metadata.uid == sent.metadata.uid:
        return known.status.phase in ("Succeeded", "Failed")
    made, later = sent.metadata.creation_timestamp, known.metadata.creation_timestamp
    # An empty text is no time, as everywhere.
    return bool(made and later) and times.parse_optional(made) < times.parse_optional(later)


def victims_otherwise(
    snapshot: Snapshot, request: PreemptRequest, body: bytes, nodes: Iterable[str]
) -> list[Change]:
    """The victims offered of nodes that the request has otherwise than the state, as it has them.

    What an eviction itself changes is not compared, and no victim whose object cannot be read.
    body: as of `victims_brought`.
    """
    if not body:
        raise BodyNeeded
    found: list[Change] = []
    sent_on = request.objects(body)
    for content in (bytes(pod) for node in nodes for pod in sent_on[node]):
        known = snapshot.pod(key_of(content))
        if known is None or _sent_as_known(known, content, of=_judged):
            continue
        sent = _read(content, snapshot)
        same_pod = isinstance(sent, Pod) and sent.metadata.uid == known.metadata.uid
        if isinstance(sent, Pod) and same_pod and _judged(sent) != _judged(known):
            found.append(("Pod", key_of(content), sent))
    return found


def _unknown(snapshot: Snapshot, request: PreemptRequest) -> list[tuple[str, int, str]]:
    """Node, place among its victims and uid of every victim that the state does not have there."""
    offered = [(one.node, at, uid) for one in request.offer for at, uid in enumerate(one.victims)]
    place_of = snapshot.nodes.index
    nodes = np.array([place_of.get(node, NOWHERE) for node, _, _ in offered], dtype=np.int64)
    rows = rows_of(snapshot, nodes, [uid for _, _, uid in offered])
    return [offered[i] for i in np.flatnonzero(rows == NOWHERE).tolist()]


def _sent_as_known(known: Pod, content: bytes, *, of: Callable[[Pod], object]) -> bool:
    """Is the pod, read as Go spells it, the one that the state has, in what `of` gives of it?

    Mostly it is, and need not be read as a manifest is, with what an API server would fill in.
    """
    try:
        return of(known) == of(_POD.decode(content))
    except (*UNDECODABLE, RecursionError):
        return False


def _deciding(pod: Pod) -> tuple[object, ...]:
    """What rules may read of a pod that waits, and may be another with its next call.

    Conditions are not compared: every attempt writes them anew.
    """
    meta, status = pod.metadata, pod.status
    of_meta = meta.labels or {}, meta.annotations or {}, meta.owner_references or []
    return meta.uid, of_meta, pod.spec, status.nominated_node_name, status.phase


def _judged(pod: Pod) -> tuple[object, ...]:
    """What rules may read of a victim, and people and controllers may change while it runs."""
    meta = pod.metadata
    of_meta = meta.labels or {}, meta.annotations or {}, meta.owner_references or []
    return of_meta, pod.spec, pod.status.start_time


def _read(content: bytes, snapshot: Snapshot) -> Pod | str:
    """The pod as the API server has it, or what is wrong with it."""
    try:
        value = folded(msgspec.json.decode(content), Pod)
        # A later API server may accept what is refused in manifests, such as another operator.
        read = read_dicts([{**value, "kind": "Pod", "apiVersion": "v1"}], admission=False)
        known = snapshot.priority_classes.values()
        pods = list(_pods(resolve(read.objects, known_classes=known, places=read.places)))
    except ManifestError as exc:
        return exc.problems[0].of_object
    except UNDECODABLE as exc:
        return f"not a pod: {undecodable(exc)}"
    except (RecursionError, TypeError) as exc:
        return f"not a pod: {exc}"
    return pods[0] if pods else "not a pod"


def _pods(objects: list[object] | object) -> Iterator[Pod]:
    for obj in objects if isinstance(objects, list) else ():
        if isinstance(obj, Pod):
            yield obj
