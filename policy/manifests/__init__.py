"""Kubernetes manifests in: what `kubectl get` prints, read into typed objects or refused whole.

`read` takes files, folders and standard input in every form that people have; `resolve` adds
what an API server would have added at admission; `from_dicts` does both for decoded objects. All
raise `ManifestError`, which names file, document, object and field of every problem.
"""

from policy.manifests.collected import ReadFrom
from policy.manifests.limits import Limits
from policy.manifests.problems import ManifestError
from policy.manifests.reader import ManifestSet, read, read_dicts
from policy.manifests.resolve import default_classes, from_dicts, resolve
from policy.text.problems import Problem

__all__ = [
    "Limits",
    "ManifestError",
    "ManifestSet",
    "Problem",
    "ReadFrom",
    "default_classes",
    "from_dicts",
    "read",
    "read_dicts",
    "resolve",
]
