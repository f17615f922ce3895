"""Cases of sessions: a small cluster in YAML, and what each rule set has to decide on it.

    - note: a task that fits is placed, and no pod is evicted for it
      nodes: {n1: {cpu: 4}}
      queues: {default: 1}
      classes: {low: 10, high: 100}
      gangs:
        low: {class: low, cpu: 1, on: [n1]}
        high: {class: high, cpu: 1, waiting: 1}
      want:
        kube-batch-sample: {evicts: [low-0], pipelined: {high-0: n1}}
        batch-safe: {evicts: [], binds: {high-0: n1}}

The pods of a gang are numbered: those that run (`on`, one node each), those that are leaving
(`leaving`), those that wait (`waiting`). What `want` does not name is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.batch.result import SessionResult
from policy.batch.rules import BatchRules
from policy.batch.run import run_session
from policy.cases import Mismatch, Suite
from policy.cases.fields import Fields
from policy.cluster import times
from policy.cluster.objects import (
    ClusterObject,
    Container,
    Node,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodStatus,
    PriorityClass,
    Quantity,
    Queue,
    QueueSpec,
    ResourceRequirements,
)
from policy.cluster.snapshot import Snapshot
from policy.rules.documents import Item, Series, parse_any
from policy.rules.problems import RulesError
from policy.text.problems import Problem

NOW: Final = "2026-01-01T00:00:00Z"
_CREATED: Final = "2025-12-31T00:00:00Z"
_NAMESPACE: Final = "default"
_PLACES: Final = ("binds", "pipelined", "allocated")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCase:
    """One case of a file."""

    note: str
    place: str  #: file and line
    objects: tuple[ClusterObject, ...]
    #: rule set -> what it has to decide: `evicts`, and pod to node of `binds`, `pipelined` ...
    want: Mapping[str, Mapping[str, Any]]

    def snapshot(self) -> Snapshot:
        return Snapshot.from_objects(self.objects, now_ms=times.parse(NOW))


def read_cases(text: str, shown: str) -> tuple[BatchCase, ...]:
    """The cases of a file's text. Raises RulesError with every problem found."""
    problems: list[Problem] = []
    root = parse_any(text, shown, problems)
    if not isinstance(root, Series):
        raise RulesError([root.place.problem("", "a file of cases is a list of cases")])
    cases = [_case(item, f"[{i}]", problems) for i, item in enumerate(root.items)]
    if problems:
        raise RulesError(problems)
    return tuple(case for case in cases if case is not None)


def run_case(case: BatchCase, rules: BatchRules) -> tuple[str, ...]:
    """What the rules decide otherwise than the case wants; empty where nothing."""
    return tuple(_differences(run_session(case.snapshot(), rules), case.want[rules.name]))


def run_suite(suite: Suite) -> Iterator[tuple[BatchCase, str, Mismatch | None]]:
    """Each case with each rule set that it wants something of, and how that one fails.

    The rules that the cases lie beside, and shipped ones that they are compared with. Raises
    RulesError.
    """
    own = BatchRules.load(suite.rules, within=suite.within)
    for case in read_cases(suite.text(), suite.shown):
        for name in dict.fromkeys((own.name, *case.want)):
            if name in case.want:
                rules = own if name == own.name else BatchRules.load(name)
                found = run_case(case, rules)
            else:
                found = (f"nothing is wanted of `{name}`",)
            failed = Mismatch(place=case.place, note=case.note, rules=name, differences=found)
            yield case, name, failed if found else None


def _differences(result: SessionResult, want: Mapping[str, Any]) -> Iterator[str]:
    for key, wanted in want.items():
        found = sorted(result.evicts) if key == "evicts" else dict(getattr(result, key))
        if found != wanted:
            yield f"{key}: wanted {wanted}, got {found}"


# --- reading -----------------------------------------------------------------------------------


def _case(item: Item, path: str, problems: list[Problem]) -> BatchCase | None:
    fields = Fields.of(item, path, problems)
    if fields is None:
        return None
    note = fields.text("note")
    objects = (*_nodes(fields), *_queues(fields), *_classes(fields), *_gangs(fields))
    want = {rules: dict(_want(inner)) for rules, inner in fields.named("want")}
    if not want:
        fields.complain(item.place, "want", "missing key `want`", "name a rule set and its result")
    fields.close()
    return BatchCase(note=" ".join(note.split()), place=str(item.place), objects=objects, want=want)


def _nodes(fields: Fields) -> Iterator[Node]:
    for name, node in fields.named("nodes"):
        amounts: dict[str, Quantity] = {"cpu": 0, "memory": "64Gi", "pods": 110}
        amounts |= _amounts(node)
        node.close()
        yield Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable=amounts))


def _amounts(fields: Fields) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for name in ("cpu", "memory", "pods"):
        amount = fields.quantity(name)
        if amount is not None:
            found[name] = amount
    return found


def _queues(fields: Fields) -> Iterator[Queue]:
    for name, weight in fields.numbers("queues").items():
        yield Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(weight=weight))


def _classes(fields: Fields) -> Iterator[PriorityClass]:
    for name, value in fields.numbers("classes").items():
        yield PriorityClass(metadata=ObjectMeta(name=name), value=value)


def _gangs(fields: Fields) -> Iterator[ClusterObject]:
    for name, gang in fields.named("gangs"):
        minimum = gang.number("minimum", 1)
        yield PodGroup(
            metadata=ObjectMeta(name=name, namespace=_NAMESPACE, creation_timestamp=_CREATED),
            spec=PodGroupSpec(
                min_member=minimum or 0,
                queue=gang.text("queue"),
                priority_class_name=gang.text("class"),
            ),
        )
        requests = _amounts(gang)
        priority = gang.number("priority")
        running = [leaf.text for leaf in gang.list("on")]
        leaving = [leaf.text for leaf in gang.list("leaving")]
        waiting = [""] * (gang.number("waiting", 0) or 0)
        gang.close()
        for i, node in enumerate([*running, *leaving, *waiting]):
            goes = len(running) <= i < len(running) + len(leaving)
            yield Pod(
                metadata=ObjectMeta(
                    name=f"{name}-{i}",
                    namespace=_NAMESPACE,
                    uid=f"{name}-{i}",
                    creation_timestamp=_CREATED,
                    deletion_timestamp=NOW if goes else None,
                    annotations={"scheduling.k8s.io/group-name": name},
                ),
                spec=PodSpec(
                    node_name=node,
                    priority=priority,
                    scheduler_name="kube-batch",
                    containers=[
                        Container(resources=ResourceRequirements(requests=requests or None))
                    ],
                ),
                status=PodStatus(phase="Running" if node else "Pending"),
            )


def _want(fields: Fields) -> Iterator[tuple[str, Any]]:
    if fields.has("evicts"):
        yield "evicts", sorted(_key(leaf.text) for leaf in fields.list("evicts"))
    for key in _PLACES:
        if fields.has(key):
            yield key, {_key(pod): node for pod, node in fields.texts(key).items()}
    fields.close()


def _key(pod: str) -> str:
    return pod if "/" in pod else f"{_NAMESPACE}/{pod}"
