"""Cluster state: the versions of every object, and how they are read."""

from __future__ import annotations

from policy.store.faces import Face, reads
from policy.store.state import around, group_past, loading, node_past, past


class StateFace(Face):
    """Cluster state out: as it is, as it was, and what changed in between."""

    clusters = reads(loading.clusters)
    cluster_names = reads(loading.cluster_names)
    load = reads(loading.load)
    changes_since = reads(loading.changes_since)
    on_node = reads(loading.on_node)
    node_at = reads(node_past.node_at)
    group_at = reads(group_past.group_at)
    head_revision = reads(loading.head_revision)
    revision_at = reads(loading.revision_at)
    revisions = reads(loading.revisions)
    oldest_revision = reads(past.oldest_revision)
    steps = reads(past.steps)
    load_checked = reads(past.load_checked)
    objects_at = reads(past.objects_at)
    counts_at = reads(past.counts_at)
    pods_around = reads(around.pods_around)
    gone_pods = reads(around.gone_pods)
    newest_pod = reads(around.newest_pod)
    pods_since = reads(around.pods_since)
