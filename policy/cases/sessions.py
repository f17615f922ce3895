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
(`leaving`), those that wait (`waiting`). The pods are for the scheduler that the rules name, or
for the `scheduler` of the gang. A queue is its weight, or a mapping with what Volcano's queues have
beside: `capability`, `deserved`, `guarantee`, `reclaimable`, `priority`, `parent`, `state`; a gang
may have `minResources`, a `phase`, and pods that are not `preemptable`. What `want` does not name
is not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace

from policy.batch.result import SessionResult
from policy.batch.rules import BatchRules
from policy.batch.run import run_session
from policy.cases import CaseMismatch, Suite
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
    PodGroupStatus,
    PodSpec,
    PodStatus,
    PriorityClass,
    Quantity,
    Queue,
    QueueGuarantee,
    QueueSpec,
    QueueStatus,
    ResourceRequirements,
)
from policy.cluster.snapshot import Snapshot
from policy.rules.documents import Branch, Item, Leaf, Series, parse_any
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

    def snapshot(self, scheduler: str) -> Snapshot:
        """scheduler: that of the pods for which the case names none."""
        objects = (
            replace(o, spec=replace(o.spec, scheduler_name=o.spec.scheduler_name or scheduler))
            if isinstance(o, Pod)
            else o
            for o in self.objects
        )
        return Snapshot.from_objects(objects, now_ms=times.parse(NOW))


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
    return tuple(
        _differences(
            run_session(case.snapshot(rules.naming.scheduler), rules), case.want[rules.name]
        )
    )


def run_suite(suite: Suite) -> Iterator[tuple[BatchCase, str, CaseMismatch | None]]:
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
            failed = CaseMismatch(place=case.place, note=case.note, rules=name, differences=found)
            yield case, name, failed if found else None


def _differences(result: SessionResult, want: Mapping[str, Any]) -> Iterator[str]:
    for key, wanted in want.items():
        if key == "evicts":
            found: Any = sorted(result.evicts)
        elif key == "phases":
            found = {name: str(result.pod_groups[name].phase) for name in wanted}
        else:
            found = dict(getattr(result, key))
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
    """A queue is its weight, or a mapping with what Volcano's queues have beside."""
    listed = fields.get("queues")
    entries = listed.entries if isinstance(listed, Branch) else {}
    plain = {name for name, item in entries.items() if isinstance(item, Leaf)}
    inner = fields.only("queues", plain)
    for name, weight in inner.numbers("queues").items():
        yield Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(weight=weight))
    for name, queue in fields.only("queues", entries.keys() - plain).named("queues"):
        guarantee = queue.quantities("guarantee")
        reclaimable = queue.word("reclaimable", ("true", "false"))
        spec = QueueSpec(
            weight=queue.number("weight", 1) or 1,
            capability=queue.quantities("capability") or None,
            deserved=queue.quantities("deserved") or None,
            guarantee=QueueGuarantee(resource=guarantee) if guarantee else None,
            reclaimable=None if not reclaimable else reclaimable == "true",
            priority=queue.number("priority", 0) or 0,
            parent=queue.text("parent"),
        )
        status = QueueStatus(state=queue.text("state"))
        queue.close()
        yield Queue(metadata=ObjectMeta(name=name), spec=spec, status=status)


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
                min_resources=gang.quantities("minResources") if gang.has("minResources") else None,
            ),
            status=PodGroupStatus(phase=gang.text("phase")),
        )
        preemptable = gang.word("preemptable", ("true", "false"))
        labels = {"volcano.sh/preemptable": preemptable} if preemptable else None
        requests = _amounts(gang)
        priority = gang.number("priority")
        scheduler = gang.text("scheduler")
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
                    labels=labels,
                    annotations={"scheduling.k8s.io/group-name": name},
                ),
                spec=PodSpec(
                    node_name=node,
                    scheduler_name=scheduler,
                    priority=priority,
                    containers=[
                        Container(resources=ResourceRequirements(requests=requests or None))
                    ],
                ),
                status=PodStatus(phase="Running" if node else "Pending"),
            )


def _want(fields: Fields) -> Iterator[tuple[str, Any]]:
    if fields.has("evicts"):
        yield "evicts", sorted(_key(leaf.text) for leaf in fields.list("evicts"))
    if fields.has("phases"):
        yield "phases", {_key(group): phase for group, phase in fields.texts("phases").items()}
    for key in _PLACES:
        if fields.has(key):
            yield key, {_key(pod): node for pod, node in fields.texts(key).items()}
    fields.close()


def _key(pod: str) -> str:
    return pod if "/" in pod else f"{_NAMESPACE}/{pod}"
