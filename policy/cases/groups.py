"""Pod groups in files of cases.

groups: {train: {priority: 100, minCount: 2, disruptionMode: PodGroup}}
pods:
  m0: {group: train, priority: 50, cpu: 4}
decide: train
want: {outcome: preempting, victims: [low], nominated: {m0: n1}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from policy.cases.fields import Fields, before, known, priority_of
from policy.cases.model import Want
from policy.cluster.objects import (
    GangPolicy,
    GroupMeta,
    GroupSchedulingConstraints,
    GroupSchedulingPolicy,
    Pod,
    PodSchedulingGroup,
    SchedulingPodGroup,
    SchedulingPodGroupSpec,
    TopologyConstraint,
)
from policy.cluster.pod_groups import GROUP_MODE, POD_MODE, group_key
from policy.decision.groups import GroupOutcome
from policy.rules.documents import Branch, Item

_POLICIES = ("Never", "PreemptLowerPriority")


def pod_key(text: str) -> str:
    """`namespace/name`; a bare name is one of namespace `default`."""
    return text if "/" in text else f"default/{text}"


def read_groups(
    fields: Fields, now_ms: int, priorities: Mapping[str, int]
) -> Iterator[SchedulingPodGroup]:
    """The case's pod groups; one without `minCount` is of policy `basic`."""
    for text, entry in fields.named("groups"):
        namespace, _, name = pod_key(text).partition("/")
        least = entry.number("minCount")
        if least is not None and least < 1:
            place = entry.branch.entries["minCount"].place
            entry.complain(place, "minCount", "`minCount` is 1 or more")
        gang = None if least is None else GangPolicy(min_count=least)
        spec = SchedulingPodGroupSpec(
            scheduling_policy=GroupSchedulingPolicy(basic=None if gang else {}, gang=gang),
            priority=priority_of(entry, priorities) or 0,
            priority_class_name=entry.text("class"),
            disruption_mode=entry.word("disruptionMode", (POD_MODE, GROUP_MODE)) or POD_MODE,
            preemption_policy=entry.word("preemptionPolicy", _POLICIES) or None,
        )
        labels, annotations = entry.texts("labels"), entry.texts("annotations")
        created = before(now_ms, entry.ago("created"))
        uid = entry.text("uid") or f"{namespace}/{name}"
        key = entry.text("topologyKey")
        if key:
            constraints = GroupSchedulingConstraints(topology=[TopologyConstraint(key=key)])
            spec = replace(spec, scheduling_constraints=constraints)
        entry.close()
        meta = GroupMeta(
            name=name,
            namespace=namespace,
            uid=uid,
            labels=labels or None,
            annotations=annotations or None,
            creation_timestamp=created,
        )
        yield SchedulingPodGroup(metadata=meta, spec=spec)


def membership(entry: Fields) -> PodSchedulingGroup | None:
    """The group that a pod names."""
    name = entry.text("group")
    return PodSchedulingGroup(pod_group_name=name) if name else None


def require_group(entry: Fields, pod: Pod, fields: Fields) -> None:
    """Complain about a group that the case does not have."""
    item = fields.branch.get("groups")
    names = {pod_key(name) for name in item.entries} if isinstance(item, Branch) else set()
    group = group_key(pod)
    if group and group not in names:
        place = entry.branch.entries["group"].place
        entry.complain(place, "group", f"no group `{group}` in this case", known(group, names))


def want_of_group(want: Fields, item: Item) -> Want | None:
    """What a case wants of a group's cycle."""
    found = Want(
        given=frozenset(want.branch.entries),
        outcome=want.word("outcome", [outcome.value for outcome in GroupOutcome]),
        victims=frozenset(pod_key(leaf.text) for leaf in want.list("victims")),
        binds={pod_key(pod): node for pod, node in want.texts("binds").items()},
        nominated={pod_key(pod): node for pod, node in want.texts("nominated").items()},
    )
    want.close()
    if not found.given:
        want.complain(item.place, "want", "`want` says nothing", "give at least an `outcome`")
    return found
