"""The public names that read files or manifests themselves: what `from policy import ...` gives.

The rooms below know nothing of each other's readers; this file is above them all and joins them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from policy.cluster import snapshot, times
from policy.manifests import from_dicts


class Snapshot(snapshot.Snapshot):
    """Immutable cluster state with the instant (`now_ms`) at which it is looked at."""

    @classmethod
    def from_manifests(
        cls,
        objects: Iterable[Mapping[str, Any]],
        *,
        now: datetime,
        admission: bool = True,
        whole: bool = False,
    ) -> Snapshot:
        """A snapshot of dicts as in a kubectl List.

        Objects of kinds that the engine does not use are skipped; admission-time defaults are
        resolved as the API server resolves them. `now` must be aware. Without `admission`, names,
        labels and operators that an API server would refuse are taken as they are. With `whole`,
        pods and nodes keep what else their manifests hold, for requests to extenders. Raises
        ManifestError with every problem found, TimeError for a naive `now`.
        """
        return cls.from_objects(
            from_dicts(objects, admission=admission, whole=whole),
            now_ms=times.from_datetime(now),
        )
