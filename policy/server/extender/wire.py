"""What kube-scheduler sends to an extender, read leniently, and the answers, written exactly.

Keys are the field names of untagged Go structs. Go itself reads keys in any case, and so did
schedulers and extenders of many versions write them; here, too, they are matched without regard
to case, unknown ones are ignored, and null counts as missing.

Source: k8s.io/kube-scheduler/extender/v1, pkg/scheduler/extender.go (1.35).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec

from policy.cluster import canonical
from policy.decision.model import OfferedNode
from policy.typed import prepared

FULL: Final = "full"
META: Final = "meta"


class BadRequest(ValueError):  # told to the caller in the words of its message
    """The body is not what a scheduler sends."""


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class PodHead(msgspec.Struct, frozen=True, gc=False):
    """Which pod an object is; the rest of it is read where it is needed."""

    metadata: _Meta

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class _FullVictims(msgspec.Struct, frozen=True, gc=False):
    Pods: list[PodHead] | None = None
    NumPDBViolations: int = 0


class _Contents(msgspec.Struct, frozen=True):
    Pods: list[msgspec.Raw] | None = None


class _Objects(msgspec.Struct, frozen=True):
    """The full form once more, for the objects of the victims."""

    NodeNameToVictims: dict[str, _Contents | None] | None = None


class _MetaPod(msgspec.Struct, frozen=True, gc=False):
    UID: str | None = None


class _MetaVictims(msgspec.Struct, frozen=True, gc=False):
    Pods: list[_MetaPod] | None = None
    NumPDBViolations: int = 0


class _Preempt(msgspec.Struct, frozen=True):
    Pod: msgspec.Raw = msgspec.Raw()
    NodeNameToVictims: dict[str, _FullVictims | None] | None = None
    NodeNameToMetaVictims: dict[str, _MetaVictims | None] | None = None


class _NodeHead(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


class _NodeList(msgspec.Struct, frozen=True):
    items: list[_NodeHead] | None = None


class _Nodes(msgspec.Struct, frozen=True):
    Nodes: msgspec.Raw = msgspec.Raw()
    NodeNames: list[str] | None = None


_PREEMPT: Final = msgspec.json.Decoder(prepared(_Preempt))
_OBJECTS: Final = msgspec.json.Decoder(prepared(_Objects))
_NODES: Final = msgspec.json.Decoder(prepared(_Nodes))
_NODE_LIST: Final = msgspec.json.Decoder(prepared(_NodeList | None))
_HEAD: Final = msgspec.json.Decoder(prepared(PodHead))
_ENCODE: Final = msgspec.json.Encoder().encode
_NULL: Final = b"null"
_NO_VICTIMS: Final = _FullVictims()
_NO_META_VICTIMS: Final = _MetaVictims()


@dataclass(frozen=True, kw_only=True)
class PreemptRequest:
    """A scheduler's question: which of these nodes, and whose pods?"""

    body: bytes
    spelled: bytes  #: the body with its keys as Go spells them
    head: PodHead
    preemptor: bytes  #: the pod's object, JSON
    offer: tuple[OfferedNode, ...]
    full: bool
    victims: Mapping[str, Sequence[PodHead]]  #: by node; empty in the meta form

    @cached_property
    def digest(self) -> str:
        """`sha256:` and the hash of the body."""
        return canonical.sha256(self.body)

    def content(self, node: str, place: int) -> bytes:
        """A victim's object as it was sent, JSON."""
        found = self._objects.NodeNameToVictims or {}
        victims = found.get(node)
        return bytes(((victims and victims.Pods) or ())[place])

    @cached_property
    def _objects(self) -> _Objects:
        """Read where a victim is not known, which is seldom."""
        found: _Objects = _OBJECTS.decode(self.spelled)
        return found

    @property
    def form(self) -> str:
        return FULL if self.full else META

    def as_offered(self) -> bytes:
        """The answer that leaves everything to the scheduler."""
        return answer(self.offer)


def answer(nodes: tuple[OfferedNode, ...]) -> bytes:
    """Body of an answer with these nodes, always in the meta form; none of them is null."""
    return _ENCODE(
        {
            "NodeNameToMetaVictims": {
                one.node: {
                    "Pods": [{"UID": uid} for uid in one.victims],
                    "NumPDBViolations": one.pdb_violations,
                }
                for one in nodes
            }
        }
    )


def _head(pod: msgspec.Raw) -> PodHead:
    try:
        return _HEAD.decode(pod)
    except msgspec.MsgspecError as exc:
        raise BadRequest(f"`Pod` is not a pod: {exc}") from exc


def read_preempt(body: bytes) -> PreemptRequest:
    """Raises BadRequest."""
    spelled, found = body, _decoded(_PREEMPT, body)
    if isinstance(found, str) or _incomplete(found):
        spelled = _folded(body)
        found = _decoded(_PREEMPT, spelled)
        if isinstance(found, str):
            raise BadRequest(f"the body is not an ExtenderPreemptionArgs object: {found}")
    if _absent(found.Pod):
        raise BadRequest("`Pod` is missing")
    offer: list[OfferedNode] = []
    victims: dict[str, Sequence[PodHead]] = {}
    full = found.NodeNameToVictims is not None
    for node, given in (found.NodeNameToVictims or {}).items():
        given = given or _NO_VICTIMS
        here = victims[node] = given.Pods or ()
        uids = tuple([pod.metadata.uid or pod.key for pod in here])
        offer.append(OfferedNode(node=node, victims=uids, pdb_violations=given.NumPDBViolations))
    for node, meta in (found.NodeNameToMetaVictims or {}).items() if not full else ():
        meta = meta or _NO_META_VICTIMS
        uids = tuple([pod.UID or "" for pod in meta.Pods or ()])
        offer.append(OfferedNode(node=node, victims=uids, pdb_violations=meta.NumPDBViolations))
    return PreemptRequest(
        body=body,
        spelled=spelled,
        head=_head(found.Pod),
        preemptor=bytes(found.Pod),
        offer=tuple(offer),
        full=full,
        victims=victims,
    )


def _absent(value: msgspec.Raw) -> bool:
    return bytes(value) in (b"", _NULL)


def _incomplete(found: _Preempt) -> bool:
    """Was something not found that may be there under a key of another case?"""
    if _absent(found.Pod):
        return True
    if found.NodeNameToVictims is None and found.NodeNameToMetaVictims is None:
        return True
    for full in (found.NodeNameToVictims or {}).values():
        if full is not None and full.Pods is None:
            return True
    for meta in (found.NodeNameToMetaVictims or {}).values():
        if meta is not None:
            if meta.Pods is None:
                return True
            for pod in meta.Pods:
                if pod.UID is None:
                    return True
    return False


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """The message, or what is wrong where keys of another case may be the reason.

    Raises BadRequest for no JSON.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        return str(exc)
    except msgspec.DecodeError as exc:
        raise BadRequest(f"the body is not JSON: {exc}") from exc
    except RecursionError as exc:
        raise BadRequest("the body is not JSON: exceeded max depth") from exc


_KEYS: Final = {
    "pod": "Pod",
    "nodes": "Nodes",
    "nodenames": "NodeNames",
    "nodenametovictims": "NodeNameToVictims",
    "nodetovictims": "NodeNameToVictims",  # the tagged package of 1.16 and before
    "nodenametometavictims": "NodeNameToMetaVictims",
}
_OF_VICTIMS: Final = {"pods": "Pods", "numpdbviolations": "NumPDBViolations"}


def _folded(body: bytes) -> bytes:
    """The same message with the keys as Go spells them."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as exc:
        raise BadRequest(f"the body is not JSON: {exc}") from exc
    top = _renamed(value, _KEYS)
    for name in ("NodeNameToVictims", "NodeNameToMetaVictims"):
        if isinstance(top.get(name), dict):
            top[name] = {
                node: None if given is None else _renamed(given, _OF_VICTIMS)
                for node, given in top[name].items()
            }
    for given in (top.get("NodeNameToMetaVictims") or {}).values():
        if given and isinstance(given.get("Pods"), list):
            given["Pods"] = [_renamed(pod, {"uid": "UID"}) for pod in given["Pods"]]
    return json.dumps(top).encode()


def _renamed(value: Any, keys: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest("an object is expected in place of another JSON value")
    known = {}
    for key, item in value.items():
        name = keys.get(key.lower())
        # Of several keys that differ in case, the last one with a value counts.
        if name is not None and (item is not None or name not in known):
            known[name] = item
    return known


# --- filter and prioritize -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesRequest:
    """A scheduler's question about nodes; the objects stay the bytes that were sent."""

    nodes: msgspec.Raw | None
    names: list[str] | None

    def each(self) -> Iterator[str]:
        """The names of all nodes. Raises BadRequest."""
        if self.names is not None:
            yield from self.names
            return
        if self.nodes is not None:
            found = _decoded(_NODE_LIST, bytes(self.nodes))
            if isinstance(found, str):
                raise BadRequest(f"`Nodes` is not a list of nodes: {found}")
            yield from (item.metadata.name for item in (found.items if found else None) or ())


def read_nodes(body: bytes) -> NodesRequest:
    """Raises BadRequest."""
    found = _decoded(_NODES, body)
    if isinstance(found, str) or (_absent(found.Nodes) and found.NodeNames is None):
        found = _decoded(_NODES, _folded(body))
        if isinstance(found, str):
            raise BadRequest(f"the body is not an ExtenderArgs object: {found}")
    nodes = None if _absent(found.Nodes) else found.Nodes
    return NodesRequest(nodes=nodes, names=found.NodeNames)


def all_pass(request: NodesRequest) -> bytes:
    """The answer of filter that leaves every node in."""
    return _ENCODE(
        {
            "Nodes": request.nodes,
            "NodeNames": request.names,
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }
    )


def all_equal(request: NodesRequest) -> bytes:
    """The answer of prioritize that prefers no node. Raises BadRequest."""
    return _ENCODE([{"Host": name, "Score": 0} for name in request.each()])
