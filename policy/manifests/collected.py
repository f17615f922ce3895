"""What was read so far: objects, each once and checked, and everything that is wrong."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from policy.cluster.objects import ClusterObject, Pod, key_of
from policy.manifests import admission, checks, limits
from policy.manifests.alike import Alike, template_of
from policy.manifests.fields import Mismatch
from policy.manifests.limits import Limits
from policy.manifests.problems import shown
from policy.observing.events import Claim, version_of
from policy.text.problems import Problem

MOST_PROBLEMS: Final = 1000
"""Reading stops after so many: a file of another program can hold millions."""

OTHER_KINDS: Final = "(other kinds)"
_MOST_KINDS: Final = 200


class Stop(Exception):
    """Nothing more is to be read; the last problem says why."""


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """Where an object was read."""

    source: str
    document: int  #: 1-based; 0 where the file is a single document


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEntry:
    """One line of a watch: an object as it came to be, or that it is gone."""

    kind: str
    key: str
    obj: ClusterObject | None  #: None where it was deleted
    resource_version: int  #: 0 where the line does not say it
    received_ms: int | None  #: where the recorder of the watch noted it
    place: ReadFrom


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenClaim:
    """An event about a preemption."""

    claim: Claim
    received_ms: int | None


_Found: TypeAlias = tuple[ClusterObject, ReadFrom, object]
"""An object, where it was read, and its resourceVersion as it stands there."""


class Collected:
    """The objects and problems of all sources, in the order of reading."""

    def __init__(self, limits: Limits, *, admission: bool) -> None:
        self.place = ReadFrom("", 0)
        self.problems: list[Problem] = []
        self.skipped: Counter[str] = Counter()
        self.repeated: Counter[str] = Counter()
        self.sources: list[str] = []
        self._limits = limits
        self._admission = admission
        self.stream: list[StreamEntry] = []
        self.claims: list[SeenClaim] = []
        self.received_ms: int | None = None  #: of the line of a watch at hand
        self._found: dict[tuple[str, str], _Found] = {}
        # the objects of lists alone, once there is a watch that changes them
        self._listed: dict[tuple[str, str], _Found] | None = None
        self._uids: dict[str, tuple[str, str]] = {}
        self._alike = Alike()
        self._single: set[str] = set()  # sources of one document
        self._first_problem = 0  # of the present source

    @property
    def objects(self) -> list[ClusterObject]:
        return [obj for obj, _, _ in self._found.values()]

    @property
    def listed(self) -> list[ClusterObject]:
        """The objects of lists, as they were before the watches among the sources."""
        return [obj for obj, _, _ in self._lists.values()]

    @property
    def _lists(self) -> dict[tuple[str, str], _Found]:
        return self._found if self._listed is None else self._listed

    @property
    def changes(self) -> list[StreamEntry]:
        """The lines of watches that are newer than the lists, in the order of their server."""
        lists = self._lists
        newer = []
        for entry in self.stream:
            listed = lists.get((entry.kind, entry.key))
            if listed is None or not 0 < entry.resource_version <= version_of(listed[2]):
                newer.append(entry)
        return newer

    @property
    def places(self) -> list[ReadFrom]:
        """Parallel to `objects`."""
        places: list[ReadFrom] = []
        given = shown = ReadFrom("", 0)
        for _, place, _ in self._found.values():
            if place is not given:
                given = place
                shown = ReadFrom(place.source, 0) if place.source in self._single else place
            places.append(shown)
        return places

    def begin(self, place: ReadFrom) -> None:
        """The objects that follow stand here."""
        if place.source != self.place.source:
            self._first_problem = len(self.problems)
        self.place = place

    def renumber(self, source: str) -> None:
        """This source, the present one, turned out to be a single document."""
        self._single.add(source)
        first = self._first_problem
        self.problems[first:] = [
            dataclasses.replace(problem, document=0) for problem in self.problems[first:]
        ]

    def problem(self, problem: Problem) -> None:
        """Raises Stop where there are too many."""
        self.problems.append(problem)
        if len(self.problems) == MOST_PROBLEMS:
            self._stop(f"reading stopped after {MOST_PROBLEMS} problems", "")

    def _stop(self, message: str, help: str) -> None:
        self.problems.append(Problem(source=self.place.source, message=message, help=help))
        raise Stop

    def skip(self, kind: str) -> None:
        """Count an object that is not used."""
        label = shown(kind)
        if label not in self.skipped and len(self.skipped) >= _MOST_KINDS:
            label = OTHER_KINDS
        self.skipped[label] += 1

    def add(
        self,
        obj: ClusterObject,
        *,
        nameless: Callable[[str], str],
        version: object = None,
        replaces: bool = False,
    ) -> None:
        """Check an object and keep it; the later of two under one key counts.

        nameless: how a kind is called whose object has no name. version: its resourceVersion.
        With `replaces`, of a watch, an earlier object under the key is outdated, not repeated.
        Raises Stop where there are too many.
        """
        at = (type(obj).__name__, key_of(obj))
        if not self._check(obj, at, nameless):
            return
        before = self._found.get(at)
        if before is None:
            if len(self._found) >= self._limits.objects:
                self._stop(*limits.too_many(self._limits))
        elif not replaces and before[0] != obj:
            self.repeated[f"{at[0]} {at[1]}"] += 1
        if replaces:
            self._change(at, obj, version)
        elif self._listed is not None:
            self._listed[at] = (obj, self.place, version)
        self._found[at] = (obj, self.place, version)

    def add_replica(self, pod: Pod, version: object) -> bool:
        """`add` for a pod of a list whose template is known; False: nothing was done with it.

        Most pods of a large dump are kept so.
        """
        found = self._found
        at = ("Pod", key_of(pod))
        if at in found or self._listed is not None or len(found) >= self._limits.objects:
            return False
        if not self._alike.is_good(pod, template_of(pod)):
            return False
        uid = pod.metadata.uid
        if uid and self._uids.setdefault(uid, at) is not at:
            return False
        found[at] = (pod, self.place, version)
        return True

    def _change(self, at: tuple[str, str], obj: ClusterObject | None, version: object) -> None:
        if self._listed is None:
            self._listed = dict(self._found)
        self.stream.append(
            StreamEntry(
                kind=at[0],
                key=at[1],
                obj=obj,
                resource_version=version_of(version),
                received_ms=self.received_ms,
                place=self.place,
            )
        )

    def claim(self, claim: Claim) -> None:
        """Keep what an event says about a preemption."""
        self.claims.append(SeenClaim(claim=claim, received_ms=self.received_ms))

    def check(self, obj: ClusterObject, *, nameless: Callable[[str], str]) -> bool:
        """Whether nothing is wrong with an object; what is wrong is kept as problems."""
        return self._check(obj, (type(obj).__name__, key_of(obj)), nameless)

    def _check(
        self, obj: ClusterObject, at: tuple[str, str], nameless: Callable[[str], str]
    ) -> bool:
        kind, key = at
        pod = obj if type(obj) is Pod else None
        template = template_of(pod) if pod is not None else b""
        wrong: list[Mismatch] = []
        if pod is None or not self._alike.is_good(pod, template):
            wrong = checks.problems(obj)
            if self._admission and obj.metadata.name:
                wrong += admission.problems(obj)
            if pod is not None and not wrong:
                self._alike.add(template, pod)
        if obj.metadata.uid:
            wrong += self._uid(obj.metadata.uid, at)
        if wrong:
            label = f"{kind} {shown(key)}" if obj.metadata.name else nameless(kind)
            for mismatch in wrong:
                self.problem(
                    Problem(
                        source=self.place.source,
                        document=self.place.document,
                        object=label,
                        field=mismatch.field,
                        message=mismatch.message,
                        help=mismatch.help,
                    )
                )
        return not wrong

    def _uid(self, uid: str, at: tuple[str, str]) -> list[Mismatch]:
        """An API server gives no uid twice."""
        owner = self._uids.setdefault(uid, at)
        if owner == at or not self._admission:
            return []
        other = self._found.get(owner)
        if other is None or other[0].metadata.uid != uid:  # replaced or deleted since
            self._uids[uid] = at
            return []
        message = f"`{shown(uid)}` is also the uid of {owner[0]} {owner[1]}"
        return [Mismatch("metadata.uid", message)]

    def remove(self, kind: str, key: str, *, version: object) -> None:
        """An object was deleted, as a watch says."""
        at = (kind, key)
        self._change(at, None, version)
        self._found.pop(at, None)
