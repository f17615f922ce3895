"""What kube-scheduler sends to an extender, read leniently, and the answers, written exactly.

Keys are the field names of untagged Go structs. Go itself reads keys in any case, and so did
schedulers and extenders of many versions write them; here, too, they are matched without regard
to case, down to the fields of a pod (see `folding`), unknown ones are ignored, and what is null or
missing has Go's zero value. Where a key is there twice, as Go writes it and in another case, the
former counts.

Source: k8s.io/kube-scheduler/extender/v1, pkg/scheduler/extender.go (1.35).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from policy.cluster import canonical
from policy.cluster.metadata import Int64
from policy.decision.model import OfferedNode
from policy.typed import UNDECODABLE, prepared, undecodable

FULL: Final = "full"
META: Final = "meta"


class BadRequest(ValueError):  # told to the caller in the words of its message
    """The body is not what a scheduler sends."""


# These hold what every scheduler writes, which is read at once. Whatever is missing, null or of
# another type may be there under a key of another case: then the message is folded and read again.


class _Meta(msgspec.Struct, frozen=True, gc=False):
    name: str
    namespace: str
    uid: str


class _PodHead(msgspec.Struct, frozen=True, gc=False):
    """Which pod an object is; the rest of it is read where it is needed."""

    metadata: _Meta

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


class _FullVictims(msgspec.Struct, frozen=True, gc=False):
    Pods: list[_PodHead]
    NumPDBViolations: Int64


class _Contents(msgspec.Struct, frozen=True):
    Pods: list[msgspec.Raw]


class _Objects(msgspec.Struct, frozen=True):
    """The full form once more, for the objects of the victims."""

    NodeNameToVictims: dict[str, _Contents]


class _MetaPod(msgspec.Struct, frozen=True, gc=False):
    UID: str


class _MetaVictims(msgspec.Struct, frozen=True, gc=False):
    Pods: list[_MetaPod]
    NumPDBViolations: Int64


class _Preempt(msgspec.Struct, frozen=True):
    Pod: msgspec.Raw
    NodeNameToVictims: dict[str, _FullVictims] | None
    NodeNameToMetaVictims: dict[str, _MetaVictims] | None


class _NodeMeta(msgspec.Struct, frozen=True):
    name: str


class _NodeHead(msgspec.Struct, frozen=True):
    metadata: _NodeMeta


class _NodeList(msgspec.Struct, frozen=True):
    items: list[_NodeHead]


class _Nodes(msgspec.Struct, frozen=True):
    Nodes: msgspec.Raw
    NodeNames: list[str] | None


_PREEMPT: Final = msgspec.json.Decoder(prepared(_Preempt))
_OBJECTS: Final = msgspec.json.Decoder(prepared(_Objects))
_NODES: Final = msgspec.json.Decoder(prepared(_Nodes))
_NODE_LIST: Final = msgspec.json.Decoder(prepared(_NodeList))
_HEAD: Final = msgspec.json.Decoder(prepared(_PodHead))
_ENCODE: Final = msgspec.json.Encoder().encode
_NULL: Final = b"null"


class PreemptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A scheduler's question: which of these nodes, and whose pods?"""

    digest: str  #: `sha256:` and the hash of the body
    size: int  #: of the body, bytes
    folded: bool  #: are its keys spelled otherwise than Go spells them?
    key: str  #: of the preemptor
    uid: str  #: of the preemptor
    preemptor: bytes  #: its object, JSON
    offer: tuple[OfferedNode, ...]
    full: bool  #: has it the objects of the victims? The meta form has uids alone

    @property
    def form(self) -> str:
        return FULL if self.full else META

    def objects(self, body: bytes) -> Mapping[str, Sequence[msgspec.Raw]]:
        """The victims as they were sent in the full form, JSON, by node.

        They are read for it, which takes as long as the whole question: most are known by uid.
        """
        found: _Objects = _OBJECTS.decode(_folded_preempt(body) if self.folded else body)
        return {node: given.Pods for node, given in found.NodeNameToVictims.items()}

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


def read_preempt(body: bytes) -> PreemptRequest:
    """Raises BadRequest."""
    read = _read_preempt(body, folded=False)
    if isinstance(read, str):
        read = _read_preempt(body, folded=True)
        if isinstance(read, str):
            raise BadRequest(read)
    return read


def _read_preempt(body: bytes, *, folded: bool) -> PreemptRequest | str:
    """The question, or what is wrong where keys of another case may be the reason."""
    found = _decoded(_PREEMPT, _folded_preempt(body) if folded else body)
    if isinstance(found, str):
        return f"the body is not an ExtenderPreemptionArgs object: {found}"
    full, meta = found.NodeNameToVictims, found.NodeNameToMetaVictims
    if full is None and meta is None:
        return "the body is not an ExtenderPreemptionArgs object: it offers no nodes"
    if meta and not full:
        full = None  # a map without nodes says no more than one that is not there
    head = _decoded(_HEAD, bytes(found.Pod))
    if isinstance(head, str):
        return f"`Pod` is not a pod: {head}"
    offer: list[OfferedNode] = []
    for node, given in (full or {}).items():
        uids = tuple([pod.metadata.uid or pod.key for pod in given.Pods])
        offer.append(OfferedNode(node=node, victims=uids, pdb_violations=given.NumPDBViolations))
    for node, given in meta.items() if full is None else ():
        uids = tuple([pod.UID for pod in given.Pods])
        offer.append(OfferedNode(node=node, victims=uids, pdb_violations=given.NumPDBViolations))
    return PreemptRequest(
        digest=canonical.sha256(body),
        size=len(body),
        folded=folded,
        key=head.key,
        uid=head.metadata.uid,
        preemptor=bytes(found.Pod),
        offer=tuple(offer),
        full=full is not None,
    )


def key_of(pod: bytes) -> str:
    """namespace/name of one of `PreemptRequest.objects`."""
    head: _PodHead = _HEAD.decode(pod)
    return head.key


def _decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """The message, or what is wrong where keys of another case may be the reason.

    Raises BadRequest for no JSON; Go would put U+FFFD in place of what is not UTF-8.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        return str(exc)
    except UNDECODABLE as exc:
        raise BadRequest(f"the body is not JSON: {undecodable(exc)}") from exc
    except RecursionError as exc:
        raise BadRequest("the body is not JSON: exceeded max depth") from exc


def _folded_preempt(body: bytes) -> bytes:
    """The same message with the keys as Go spells them; what is not given is Go's zero value."""
    top = _folded(body)
    if top.get("Pod") is None:
        raise BadRequest("`Pod` is missing")
    full, meta = top.get("NodeNameToVictims"), top.get("NodeNameToMetaVictims")
    full = top.get("NodeToVictims") if full is None else full
    if full is None and meta is None:
        meta = {}
    _fill_name(top["Pod"])
    for pod in _filled(full):
        _fill_name(pod)
    for pod in _filled(meta):
        _fill(pod, UID="")
    asked = {"Pod": top["Pod"], "NodeNameToVictims": full, "NodeNameToMetaVictims": meta}
    return _written(asked)


def _folded_nodes(body: bytes) -> bytes:
    top = _folded(body)
    return _written({key: top.get(key) for key in ("Nodes", "NodeNames")})


def _filled(nodes: Any) -> Iterator[Any]:
    """The victims, once the offer of each node is whole; null is one without victims."""
    for node, given in nodes.items() if isinstance(nodes, dict) else ():
        offer = nodes[node] = {} if given is None else given
        _fill(offer, Pods=[], NumPDBViolations=0)
        if isinstance(offer, dict) and isinstance(offer["Pods"], list):
            yield from offer["Pods"]


def _fill_name(pod: Any) -> None:
    if isinstance(pod, dict):
        _fill(pod.get("metadata"), name="", namespace="", uid="")


def _fill(value: Any, **zeros: Any) -> None:
    """Set what an object does not have, or has as null, as Go leaves it."""
    if isinstance(value, dict):
        value |= {key: zero for key, zero in zeros.items() if value.get(key) is None}


def _folded_list(nodes: bytes) -> bytes:
    from policy.server.extender.folding import NodeList, folded

    value = folded(_loaded(nodes), NodeList)
    _fill(value, items=[])
    if isinstance(value, dict) and isinstance(value["items"], list):
        for node in value["items"]:
            _fill(node, metadata={"name": ""})
            _fill_name(node)
    return _written(value)


def _folded(body: bytes) -> dict[str, Any]:
    from policy.server.extender.folding import Args, folded  # few schedulers need it

    value = _loaded(body)
    if not isinstance(value, dict):
        raise BadRequest("an object is expected in place of another JSON value")
    found: dict[str, Any] = folded(value, Args)
    return found


def _loaded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError as exc:
        raise BadRequest(f"the body is not JSON: {exc}") from exc
    except ValueError as exc:
        raise BadRequest(f"the body is not JSON: {undecodable(exc)}") from exc


def _written(value: Any) -> bytes:
    try:
        return json.dumps(value).encode()
    except RecursionError as exc:
        raise BadRequest("the body is not JSON: exceeded max depth") from exc


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
                found = _decoded(_NODE_LIST, _folded_list(bytes(self.nodes)))
            if isinstance(found, str):
                raise BadRequest(f"`Nodes` is not a list of nodes: {found}")
            yield from (item.metadata.name for item in found.items)


def read_nodes(body: bytes) -> NodesRequest:
    """Raises BadRequest."""
    found = _decoded(_NODES, body)
    if isinstance(found, str) or (bytes(found.Nodes) == _NULL and found.NodeNames is None):
        found = _decoded(_NODES, _folded_nodes(body))
        if isinstance(found, str):
            raise BadRequest(f"the body is not an ExtenderArgs object: {found}")
    nodes = None if bytes(found.Nodes) == _NULL else found.Nodes
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
