"""image-locality: nodes that hold the pod's images already, as far as they say so.

An image counts by its size, and by how many of the cluster's nodes hold it: an image that few
nodes hold should not draw every pod to them.

Source: ImageLocality's Score, and the scheduler cache's image states (1.35).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.cluster.objects import Pod
from policy.cluster.snapshot import Delta, Snapshot
from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes, Parameters
from policy.scoring.base import MAX, Scope, ScorerInfo

_MIB: Final = 1024 * 1024
SMALLEST: Final = 23 * _MIB
"""Images below this size in sum are worth nothing."""
LARGEST: Final = 1000 * _MIB
"""Beyond this size per container nothing is gained."""


def normalised_name(image: str) -> str:
    """The name as the kubelet lists it: `latest` where the pod names no tag."""
    return image if image.rfind(":") > image.rfind("/") else image + ":latest"


def images_of(pod: Pod) -> Iterator[str]:
    """Images of init containers, containers and image volumes, one for each of them."""
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        yield normalised_name(container.image or "")
    for volume in pod.spec.volumes or ():
        if volume.image is not None:
            yield normalised_name(volume.image.reference)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Images:
    """Which nodes hold each image; image i is on `nodes[offsets[i]:offsets[i + 1]]`."""

    ids: dict[str, int]
    sizes: list[int]  #: bytes, as the first node by name gives them
    offsets: Ints
    nodes: Ints

    @staticmethod
    def build(snapshot: Snapshot) -> _Images:
        ids: dict[str, int] = {}
        sizes: list[int] = []
        held: list[tuple[int, int]] = []
        for i, node in enumerate(snapshot.nodes.nodes):
            on_node: set[int] = set()
            for image in node.status.images or ():
                for name in image.names or ():
                    found = ids.setdefault(name, len(sizes))
                    if found == len(sizes):
                        sizes.append(image.size_bytes)
                    on_node.add(found)
            held.extend((image_id, i) for image_id in on_node)
        pairs = np.array(sorted(held), dtype=np.int64).reshape(len(held), 2)
        counts = np.bincount(pairs[:, 0], minlength=len(sizes))
        return _Images(
            ids=ids,
            sizes=sizes,
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            nodes=pairs[:, 1],
        )

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _Images | None:
        if not delta.nodes_changed:
            return self
        old, new = before.nodes.nodes, after.nodes.nodes
        if before.nodes.names != after.nodes.names:
            return None
        # Nodes report their state every few minutes, and mostly the same images.
        same = all(
            a is b or a.status.images == b.status.images for a, b in zip(old, new, strict=True)
        )
        return self if same else None


def score(incoming: Incoming, _: Parameters, nodes: Nodes) -> Ints | None:
    snapshot = incoming.snapshot
    images = snapshot.derived("images", _Images.build)
    wanted = list(images_of(incoming.pod))
    known = [images.ids[name] for name in wanted if name in images.ids]
    if not known:
        return None
    total = len(snapshot.nodes)
    sums = np.zeros(total, dtype=np.int64)
    for i in known:
        holders = images.nodes[images.offsets[i] : images.offsets[i + 1]]
        sums[holders] += int(float(images.sizes[i]) * (float(holders.size) / float(total)))
    largest = LARGEST * len(wanted)
    return MAX * (np.clip(sums[nodes], SMALLEST, largest) - SMALLEST) // (largest - SMALLEST)


INFO = ScorerInfo(
    name="image-locality",
    plugin="ImageLocality",
    doc="Prefers nodes that hold the pod's images already (status.images), the larger and the "
    "more widespread the better.",
    score=score,
    scope=Scope.NODE,
)
