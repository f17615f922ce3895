"""Pods that a scheduler's request knows better than the recorded state does.

The state may be older than the request: a pod that was made a second ago, or one that was bound
since. Then the request's object counts, and is recorded as a revision of its own before the
decision that reads it, so that the decision can be made again.

Or the state is the newer one: a pod that has left it does not come back, whoever still offers it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import NOWHERE
from policy.manifests import ManifestError, read_dicts, resolve
from policy.preemption.offers import rows_of
from policy.server.extender.folding import folded
from policy.server.extender.wire import BadRequest, PodHead, PreemptRequest
from policy.typed import prepared

_POD: Final = msgspec.json.Decoder(prepared(Pod))


def brought(
    snapshot: Snapshot,
    request: PreemptRequest,
    *,
    gone: Callable[[Mapping[str, str]], Collection[str]],
) -> tuple[list[Change], bool]:
    """The pods to be taken over from the request, and whether the preemptor had left before.

    gone: gets uids by key, and gives the keys of those that have left the cluster; such victims do
    not come back. A victim whose object cannot be read is not taken over; who is unknown is never
    evicted. Raises BadRequest for a preemptor that cannot be read.
    """
    found: dict[str, Pod] = {}
    known = snapshot.pod(request.head.key)
    returned = False
    if known is None or not _sent_as_known(known, request.preemptor):
        preemptor = _read(request.preemptor, snapshot)
        if isinstance(preemptor, str):
            raise BadRequest(f"`Pod`: {preemptor}")
        if known is None or _differs(known, preemptor):
            uid = preemptor.metadata.uid
            other = known is None or known.metadata.uid != uid
            returned = other and bool(gone({request.head.key: uid}))
            found[request.head.key] = preemptor
    unsure = list(_unsure(snapshot, request))
    left = gone({head.key: head.metadata.uid for _, _, head in unsure}) if unsure else ()
    for node, place, head in unsure:
        key = head.key
        if key in left:
            continue
        known = snapshot.pod(key)
        if known is None or known.metadata.uid != head.metadata.uid or known.spec.node_name != node:
            pod = _read(request.content(node, place), snapshot)
            if isinstance(pod, Pod):
                found[key] = pod
    return [("Pod", key, pod) for key, pod in found.items()], returned


def _unsure(snapshot: Snapshot, request: PreemptRequest) -> Iterator[tuple[str, int, PodHead]]:
    """Node, place and head of the victims that have to be looked at one by one.

    Mostly there is none: the state has all of them, under their names, on their nodes.
    """
    if not request.victims:
        return
    victims = [(n, i, head) for n, heads in request.victims.items() for i, head in enumerate(heads)]
    if not len(snapshot.pods):
        yield from victims
        return
    index = snapshot.nodes.index
    nodes = np.array([index.get(node, NOWHERE) for node, _, _ in victims], dtype=np.int64)
    rows = rows_of(snapshot, nodes, [head.metadata.uid for _, _, head in victims])
    keys = np.empty(len(victims), dtype=np.object_)
    keys[:] = [head.key for _, _, head in victims]
    sure = (nodes != NOWHERE) & (rows != NOWHERE) & (snapshot.keys[rows] == keys)
    for place in np.flatnonzero(~sure).tolist():
        yield victims[place]


def _sent_as_known(known: Pod, content: bytes) -> bool:
    """Is the pod, read as Go spells it, the one that the state has?

    Mostly it is, and need not be read as a manifest is, with what an API server would fill in.
    """
    try:
        return not _differs(known, _POD.decode(content))
    except (msgspec.MsgspecError, RecursionError):
        return False


def _differs(known: Pod, sent: Pod) -> bool:
    """Is the pod that waits another one than the state has, or waits otherwise?

    Conditions are not compared: every attempt writes them anew.
    """
    return _deciding(known) != _deciding(sent)


def _deciding(pod: Pod) -> tuple[object, ...]:
    meta, status = pod.metadata, pod.status
    return meta.uid, meta.labels, pod.spec, status.nominated_node_name, status.phase


def _read(content: bytes, snapshot: Snapshot) -> Pod | str:
    """The pod as the API server has it, or what is wrong with it."""
    try:
        value = folded(msgspec.json.decode(content), Pod)
        read = read_dicts([{**value, "kind": "Pod", "apiVersion": "v1"}])
        known = snapshot.priority_classes.values()
        pods = list(_pods(resolve(read.objects, known_classes=known, places=read.places)))
    except (msgspec.MsgspecError, RecursionError, TypeError) as exc:
        return f"not a pod: {exc}"
    except ManifestError as exc:
        return exc.problems[0].of_object
    return pods[0] if pods else "not a pod"


def _pods(objects: list[object] | object) -> Iterator[Pod]:
    for obj in objects if isinstance(objects, list) else ():
        if isinstance(obj, Pod):
            yield obj
