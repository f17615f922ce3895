"""Fields and annotations of Volcano's objects that are read and that no session acts on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from policy.cluster.objects import ClusterObject, PodGroup, Queue, key_of, kind_of
from policy.text.words import number

_NAMED = 3
_BY_PLUGIN = ("capability", "deserved", "guarantee", "priority", "parent", "affinity")
_NO_EFFECT = "has no effect on sessions"
_SOME_EFFECT = "has an effect only on sessions in which a plugin reads it"
_NODE_GROUP_LIMITS = "volcano.sh/nodegroup-resource-limits"


def unmodelled_fields(obj: ClusterObject) -> Iterator[str]:
    """Names of the fields and annotations that are set, as manifests write them."""
    if isinstance(obj, PodGroup | Queue) and _NODE_GROUP_LIMITS in (obj.metadata.annotations or {}):
        yield _NODE_GROUP_LIMITS
    if isinstance(obj, PodGroup):
        if obj.spec.network_topology is not None:
            yield "networkTopology"
        if obj.spec.sub_group_policy:
            yield "subGroupPolicy"
    elif isinstance(obj, Queue) and obj.spec.dequeue_strategy == "fifo":
        # Volcano declares the field and reads it nowhere; `traverse` is what it does.
        yield "dequeueStrategy"


def notices(objects: Iterable[ClusterObject]) -> list[str]:
    """A sentence for each such field, and for those that some rules read, with their objects."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for obj in objects:
        for field in unmodelled_fields(obj):
            found.setdefault((kind_of(obj), field, _NO_EFFECT), []).append(key_of(obj))
        if isinstance(obj, Queue):
            for field in filter(partial(getattr, obj.spec), _BY_PLUGIN):
                found.setdefault((kind_of(obj), field, _SOME_EFFECT), []).append(key_of(obj))
    sentences = []
    for (kind, field, effect), keys in sorted(found.items()):
        named = ", ".join(f"`{key}`" for key in sorted(keys)[:_NAMED])
        more = f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        sentences.append(f"`{field}` of {number(len(keys), kind)} {effect}: {named}{more}")
    return sentences
