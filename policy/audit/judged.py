"""Comparisons that were made already."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from policy.audit.compare import Comparison

ComparisonKey: TypeAlias = tuple[str, int | str, str]
"""Digest of the rules, number of the decision (or `group:` and that of a cycle), its digest."""

_KEPT: Final = 2000


class JudgedBefore:
    """The newest comparisons, so that a page that is opened again need not decide again.

    A decision is known by its digest, which names the state, the pod and the seed: whatever a
    database holds in its place later has another one. Any thread may use it.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[ComparisonKey, Comparison] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: ComparisonKey) -> Comparison | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def keep(self, key: ComparisonKey, found: Comparison) -> None:
        with self._lock:
            self._found[key] = found
            self._found.move_to_end(key)
            if len(self._found) > _KEPT:
                self._found.popitem(last=False)
