"""What is said to an extender and what it answers, in kube-scheduler's wire format.

Keys are the field names of untagged Go structs: capitalised, nothing left out. Answers are read
as Go reads them: keys in any case, the first JSON value only, null for anything absent.

Pods and nodes are sent whole where they were imported so (`policy.cluster.whole`), otherwise with
the fields that the engine knows (`policy.cluster.objects`).

Source: k8s.io/kube-scheduler/extender/v1, pkg/scheduler/extender.go (1.35).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import msgspec

from policy.cluster import canonical
from policy.cluster.objects import Node, Pod, key_of
from policy.cluster.whole import whole
from policy.rules.ruleset import Extender
from policy.typed import prepared


class ExtenderVerb(StrEnum):
    """What an extender is queried for. Values are stored and never renamed."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of one question."""

    status: int  #: HTTP status; 0 where no answer came
    error: str  #: why the call failed, "" where it did not
    content: str  #: what the engine reads of the answer, as JSON; "" where the call failed


class Extenders(Protocol):
    """Whoever answers for the extenders: the network, or a record of what it said."""

    def ask(self, kind: ExtenderVerb, extender: Extender, request: bytes) -> Answer:
        """The answer to a request (JSON); a failure is an answer, too."""


class BadAnswer(ValueError):  # told to people in the words of its message
    """The body is not what an extender may answer."""


def url_of(extender: Extender, kind: ExtenderVerb) -> str:
    """Where a question goes."""
    return f"{extender.url_prefix.rstrip('/')}/{verb_of(extender, kind)}"


def verb_of(extender: Extender, kind: ExtenderVerb) -> str:
    """The path of a question; "" where the extender is not asked such questions."""
    return {
        ExtenderVerb.FILTER: extender.filter_verb,
        ExtenderVerb.PRIORITIZE: extender.prioritize_verb,
        ExtenderVerb.PREEMPT: extender.preempt_verb,
    }[kind]


# --- requests ------------------------------------------------------------------------------------


JsonObject: TypeAlias = dict[str, Any]
"""A pod or node as the API has it, without kind and apiVersion."""


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    metadata: dict[str, str]
    items: list[JsonObject]


class ExtenderArgs(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Question of filter and prioritize: which of these nodes?"""

    pod: JsonObject
    nodes: NodeList | None
    node_names: list[str] | None


class MetaPod(msgspec.Struct, frozen=True, kw_only=True):
    uid: str = msgspec.field(name="UID")


class Victims(msgspec.Struct, frozen=True, kw_only=True):
    pods: list[JsonObject] = msgspec.field(name="Pods")
    pdb_violations: int = msgspec.field(name="NumPDBViolations")


class MetaVictims(msgspec.Struct, frozen=True, kw_only=True):
    pods: list[MetaPod] = msgspec.field(name="Pods", default_factory=list)
    pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)


class ExtenderPreemptionArgs(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Question of preempt: which of these nodes, and whose pods?"""

    pod: JsonObject
    node_name_to_victims: dict[str, Victims] | None
    node_name_to_meta_victims: dict[str, MetaVictims] | None


def uid_of(pod: Pod) -> str:
    """How an extender names a pod; manifests written by hand have no uid but a name."""
    return pod.metadata.uid or key_of(pod)


def nodes_request(pod: Pod, nodes: Iterable[Node], *, names_only: bool) -> bytes:
    """Body of filter and prioritize."""
    listed = list(nodes)
    return canonical.encode(
        ExtenderArgs(
            pod=whole(pod),
            nodes=None
            if names_only
            else NodeList(metadata={}, items=[whole(node) for node in listed]),
            node_names=[n.metadata.name for n in listed] if names_only else None,
        )
    )


def victims_request(
    pod: Pod, offers: Mapping[str, tuple[list[Pod], int]], *, names_only: bool
) -> bytes:
    """Body of preempt; offers: node name to its victims and how many of them break a budget."""
    full: dict[str, Victims] = {}
    meta: dict[str, MetaVictims] = {}
    for node, (pods, violations) in sorted(offers.items()):
        if names_only:
            uids = [MetaPod(uid=uid_of(p)) for p in pods]
            meta[node] = MetaVictims(pods=uids, pdb_violations=violations)
        else:
            full[node] = Victims(pods=[whole(p) for p in pods], pdb_violations=violations)
    return canonical.encode(
        ExtenderPreemptionArgs(
            pod=whole(pod),
            node_name_to_victims=None if names_only else full,
            node_name_to_meta_victims=meta if names_only else None,
        )
    )


def request_digest(request: bytes) -> str:
    """`sha256:` and the hash of a request's body."""
    return canonical.sha256(request)


# --- answers -------------------------------------------------------------------------------------


class FilterAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """Which nodes pass (None: none at all), and why the others do not."""

    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str


class HostPriority(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    host: str
    score: int


class PreemptAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The nodes that remain, with the victims that the extender leaves there."""

    node_name_to_meta_victims: dict[str, MetaVictims]


def content_of(kind: ExtenderVerb, body: bytes, *, names_only: bool) -> str:
    """What the engine reads of an answer's body, as JSON. Raises BadAnswer.

    names_only: the extender was asked for node names, so that `NodeNames` counts.
    """
    value = _first_value(body)
    match kind:
        case ExtenderVerb.FILTER:
            read: Any = _filter_answer(value, names_only=names_only)
        case ExtenderVerb.PRIORITIZE:
            read = [_host_priority(v) for v in _list(value, "HostPriorityList")]
        case ExtenderVerb.PREEMPT:
            read = _preempt_answer(value)
    return canonical.encode(read).decode()


def filter_answer(content: str) -> FilterAnswer:
    return _FILTER.decode(content)


def priorities(content: str) -> list[HostPriority]:
    return _PRIORITIES.decode(content)


def preempt_answer(content: str) -> PreemptAnswer:
    return _PREEMPT.decode(content)


_FILTER: Final = msgspec.json.Decoder(prepared(FilterAnswer))
_PRIORITIES: Final = msgspec.json.Decoder(prepared(list[HostPriority]))
_PREEMPT: Final = msgspec.json.Decoder(prepared(PreemptAnswer))
_INT64: Final = 2**63


def _constant(text: str) -> NoReturn:
    raise BadAnswer(f"invalid character {text[0]!r} looking for beginning of value")


_JSON: Final = json.JSONDecoder(parse_constant=_constant)


def _first_value(body: bytes) -> Any:
    """The first JSON value of the body; what follows it does not matter."""
    text = body.decode("utf-8", errors="replace").lstrip(" \t\r\n")
    if not text:
        raise BadAnswer("EOF")
    try:
        return _JSON.raw_decode(text)[0]
    except json.JSONDecodeError as exc:
        if exc.pos == 0:
            raise BadAnswer(
                f"invalid character {text[0]!r} looking for beginning of value"
            ) from exc
        if exc.pos >= len(text):
            raise BadAnswer("unexpected EOF") from exc
        raise BadAnswer(f"invalid JSON at character {exc.pos}") from exc
    except RecursionError as exc:
        raise BadAnswer("exceeded max depth") from exc


def _fields(value: Any, name: str, *wanted: str) -> dict[str, Any]:
    """The wanted fields of an object, keys in any case; None where absent or null."""
    found: dict[str, Any] = dict.fromkeys(wanted)
    if value is None:
        return found
    if not isinstance(value, dict):
        raise _mismatch(value, name)
    by_fold = {key.lower(): key for key in wanted}
    for key, item in value.items():
        known = by_fold.get(key.lower())
        if known is not None:
            found[known] = item
    return found


def _mismatch(value: Any, name: str) -> BadAnswer:
    kinds = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return BadAnswer(f"cannot unmarshal {kinds.get(type(value), 'object')} into {name}")


def _text(value: Any, name: str) -> str:
    if value is not None and not isinstance(value, str):
        raise _mismatch(value, name)
    return value or ""


def _integer(value: Any, name: str) -> int:
    if value is None:
        return 0
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise _mismatch(value, name)
    return value


def _list(value: Any, name: str) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise _mismatch(value, name)
    return value or []


def _map(value: Any, name: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise _mismatch(value, name)
    return value or {}


def _filter_answer(value: Any, *, names_only: bool) -> FilterAnswer:
    keys = ("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error")
    found = _fields(value, "ExtenderFilterResult", *keys)
    names: list[str] | None = None
    # Both are read, whichever counts: a malformed one is an error.
    if found["Nodes"] is not None:
        items = _list(_fields(found["Nodes"], "NodeList", "items")["items"], "NodeList.items")
        names = [_node_name(item) for item in items]
    if found["NodeNames"] is not None:
        given = [_text(n, "NodeNames") for n in _list(found["NodeNames"], "NodeNames")]
        names = given if names_only else names
    return FilterAnswer(
        node_names=names,
        failed_nodes=_messages(found["FailedNodes"], "FailedNodes"),
        failed_and_unresolvable_nodes=_messages(
            found["FailedAndUnresolvableNodes"], "FailedAndUnresolvableNodes"
        ),
        error=_text(found["Error"], "Error"),
    )


def _node_name(item: Any) -> str:
    meta = _fields(item, "Node", "metadata")["metadata"]
    return _text(_fields(meta, "ObjectMeta", "name")["name"], "ObjectMeta.name")


def _messages(value: Any, name: str) -> dict[str, str]:
    return {node: _text(text, name) for node, text in _map(value, name).items()}


def _host_priority(value: Any) -> HostPriority:
    found = _fields(value, "HostPriority", "Host", "Score")
    return HostPriority(
        host=_text(found["Host"], "HostPriority.Host"),
        score=_integer(found["Score"], "HostPriority.Score"),
    )


def _preempt_answer(value: Any) -> PreemptAnswer:
    found = _fields(value, "ExtenderPreemptionResult", "NodeNameToMetaVictims")
    nodes = _map(found["NodeNameToMetaVictims"], "NodeNameToMetaVictims")
    return PreemptAnswer(
        node_name_to_meta_victims={node: _meta_victims(item) for node, item in nodes.items()}
    )


def _meta_victims(value: Any) -> MetaVictims:
    """A null entry crashes kube-scheduler; here it is an entry without victims."""
    found = _fields(value, "MetaVictims", "Pods", "NumPDBViolations")
    pods = [_fields(p, "MetaPod", "UID")["UID"] for p in _list(found["Pods"], "MetaVictims.Pods")]
    return MetaVictims(
        pods=[MetaPod(uid=_text(uid, "MetaPod.UID")) for uid in pods],
        pdb_violations=_integer(found["NumPDBViolations"], "MetaVictims.NumPDBViolations"),
    )
