"""Whole Kubernetes objects in files of cases, for what the short form has no key for.

manifests:
  - apiVersion: v1
    kind: Pod
    metadata: {name: db}
    spec: {nodeName: n1, priority: 0, affinity: {podAntiAffinity: ...}, containers: [...]}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policy.cases.fields import Fields
from policy.cluster.objects import ClusterObject, key_of
from policy.manifests import ManifestError, from_dicts
from policy.rules.documents import Branch, Series, plain


def read_manifests(fields: Fields) -> Iterator[ClusterObject]:
    """The objects, with what an API server would fill in at admission."""
    item = fields.get("manifests")
    if item is None:
        return
    if not isinstance(item, Series) or not all(isinstance(one, Branch) for one in item.items):
        fields.complain(item.place, "manifests", "`manifests` must be a list of objects")
        return
    try:
        yield from from_dicts(plain(item))
    except ManifestError as exc:
        for problem in exc.problems:
            what = " ".join(part for part in (problem.object, problem.field) if part)
            text = f"{what}: {problem.message}" if what else problem.message
            fields.complain(item.place, "manifests", text, problem.help or None)


def complain_of_doubles(fields: Fields, objects: Iterable[ClusterObject]) -> None:
    """An object may be given once: by its short form or by a manifest."""
    seen: set[tuple[str, str]] = set()
    for found in objects:
        kind, key = type(found).__name__, key_of(found)
        if (kind, key) in seen:
            place = fields.branch.entries["manifests"].place
            fields.complain(place, "manifests", f"{kind} `{key}` is given twice")
        seen.add((kind, key))
