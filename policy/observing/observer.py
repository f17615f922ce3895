"""From changed pods and events to preemptions with their evidence.

1. An event `Preempted` names victim and preemptor: certain. Events of one preemptor on one node
   that come close together are one preemption.
2. A victim that is marked and has no event: the pod that was nominated to its node just then, with
   a higher priority, is likely its preemptor; without such a pod the preemptor is unknown.
3. A nomination for which no pod was newly evicted: lower pods that were leaving its node already
   possibly made room for it.

Evidence waits: of 1 until nothing more has come for `settle_ms`, of 2 and 3 for `patience_ms`,
since the event may be late or on its way in another watch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from policy.cluster.objects import Pod, key_of
from policy.observing.events import Claim
from policy.observing.gathered import Gathered, Mark, Nomination, SeenClaim
from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim

SETTLE_MS: Final = 2_000
"""A preemption is whole when so long nothing more was seen of it."""

PATIENCE_MS: Final = 30_000
"""So long the event about a marked victim, or about a nomination, is waited for."""

_TOGETHER_MS: Final = 10_000
"""A mark and a nomination belong together that are not further apart."""

_ONE_WAVE_MS: Final = 5_000
"""Events of one preemptor on one node that are further apart are two preemptions."""


class Observer(Gathered):
    """Follows one cluster: it takes what is seen; `conclude` gives what is settled."""

    def __init__(
        self,
        *,
        settle_ms: int = SETTLE_MS,
        patience_ms: int = PATIENCE_MS,
        recorded_events: Iterable[str] = (),
        pods: Callable[[], Iterable[Pod]] = tuple,
    ) -> None:
        """recorded_events: uids of events that earlier observations rest on.

        pods: those that are known. Events of 1.36 name a preemptor by its uid alone.
        """
        super().__init__(recorded_events)
        self._pods = pods
        self._settle_ms = settle_ms
        self._patience_ms = patience_ms

    def conclude(self, now_ms: int | None = None) -> list[Preemption]:
        """The preemptions that are settled at `now_ms`; all that there is evidence for without."""
        found = [
            *self._certain(now_ms),
            *self._likely(now_ms),
            *self._possible(now_ms),
        ]
        if now_ms is not None:
            self.forget(now_ms - 4 * self._patience_ms)
        return sorted(found, key=lambda p: (p.at_ms, p.preemptor, p.node))

    def _certain(self, now_ms: int | None) -> list[Preemption]:
        groups: dict[tuple[str, str, str], list[SeenClaim]] = defaultdict(list)
        for seen in self.claims:
            claim = seen.claim
            groups[claim.preemptor_uid or claim.preemptor, claim.preemptor_kind, claim.node].append(
                seen
            )
        # In the order of their events, for marks go to the first claim about a pod.
        ready: list[list[SeenClaim]] = []
        kept: list[SeenClaim] = []
        for group in groups.values():
            for wave in self._waves(
                sorted(group, key=lambda s: (s.at_ms, s.claim.resource_version))
            ):
                last = max(seen.seen_ms for seen in wave)
                if now_ms is None or last + self._settle_ms <= now_ms:
                    ready.append(wave)
                else:
                    kept += wave
        self.claims = kept
        ready.sort(key=lambda wave: (wave[0].at_ms, wave[0].claim.resource_version))
        return [self._of_claims([seen.claim for seen in wave], wave[0].at_ms) for wave in ready]

    def _waves(self, seen: list[SeenClaim]) -> Iterable[list[SeenClaim]]:
        """Events in order, parted where one preemptor preempted again.

        That is where a while lies between two, where a pod is a victim again, and where a victim
        was marked when all before it were gone: no pod may preempt while victims of its own are
        leaving the node that it is nominated to.
        """
        wave: list[SeenClaim] = []
        for one in seen:
            again = any(
                (before.claim.victim, before.claim.victim_uid)
                == (one.claim.victim, one.claim.victim_uid)
                for before in wave
            )
            late = wave and one.at_ms - wave[-1].at_ms > _ONE_WAVE_MS
            if wave and (again or late or self._after_all_left(wave, one)):
                yield wave
                wave = []
            wave.append(one)
        if wave:
            yield wave

    def _after_all_left(self, wave: list[SeenClaim], one: SeenClaim) -> bool:
        mark = self._mark_of(one.claim)
        if mark is None or not mark.version:
            return False
        leaving = self.leaving.get(mark.node, {})
        return all(
            (pod := leaving.get(seen.claim.victim_uid)) is not None
            and 0 < pod.gone_version < mark.version
            for seen in wave
        )

    def _of_claims(self, claims: list[Claim], at_ms: int) -> Preemption:
        first = claims[0]
        nomination = self._nomination_of(first)
        used_before = nomination is not None and (
            nomination.used or self._waited_for_others(nomination, claims)
        )
        if nomination is not None:
            nomination.used = True
        mine = nomination if not used_before else None
        known = [c for c in claims if c.preemptor]
        if known:
            preemptor = known[0].preemptor
        else:
            preemptor = nomination.pod if nomination else self._named(first.preemptor_uid)
        return Preemption(
            preemptor=preemptor,
            preemptor_uid=first.preemptor_uid or (nomination.uid if nomination else ""),
            preemptor_kind=first.preemptor_kind,
            node=first.node,
            scheduler=first.scheduler or (nomination.scheduler if nomination else ""),
            at_ms=at_ms,
            confidence=Confidence.CERTAIN if preemptor else Confidence.POSSIBLE,
            victims=tuple(
                sorted((self._victim(claim, mine) for claim in claims), key=lambda v: v.pod)
            ),
            nomination_version=mine.version if mine else 0,
            nominated=mine is not None,
            again=used_before,
        )

    def _named(self, uid: str) -> str:
        """The pod of that uid, "" where none is known."""
        if not uid:
            return ""
        return next((key_of(pod) for pod in self._pods() if pod.metadata.uid == uid), "")

    def _waited_for_others(self, nomination: Nomination, claims: list[Claim]) -> bool:
        """Was the pod nominated by an earlier attempt, for which no pod was newly evicted?

        Then pods that were leaving its node already were to make the room, and they were gone when
        the first of these victims was marked.
        """
        marks = [m.version for c in claims if (m := self._mark_of(c)) is not None and m.version]
        return any(
            pod.version < nomination.version < pod.gone_version < min(marks, default=0)
            and pod.priority < nomination.priority
            for pod in self.leaving.get(nomination.node, {}).values()
        )

    def _nomination_of(self, claim: Claim) -> Nomination | None:
        for one in self.nominations.values():
            same = (
                one.uid == claim.preemptor_uid
                if claim.preemptor_uid and one.uid
                else bool(claim.preemptor) and one.pod == claim.preemptor
            )
            if same and one.node == claim.node:
                return one
        return None

    def _victim(self, claim: Claim, nomination: Nomination | None) -> SeenVictim:
        evidence = [Evidence.EVENT]
        mark = self._mark_of(claim)
        here = mark is not None and not mark.taken
        if mark is not None:
            evidence.append(Evidence.CONDITION)
            mark.taken = True
        node = mark.node if mark is not None else claim.node
        if any(
            leaving.uid == claim.victim_uid if claim.victim_uid else leaving.pod == claim.victim
            for leaving in self.leaving.get(node, {}).values()
        ):
            evidence.append(Evidence.DELETION)
        if nomination is not None:
            evidence.append(Evidence.NOMINATION)
        return SeenVictim(
            pod=claim.victim,
            uid=claim.victim_uid,
            evidence=tuple(evidence),
            event_uid=claim.event_uid,
            event_version=claim.resource_version,
            mark_version=mark.version if mark is not None else 0,
            marked_here=here,
        )

    def _mark_of(self, claim: Claim) -> Mark | None:
        found = self.marks.get(claim.victim_uid or claim.victim)
        if found is not None or claim.victim_uid:
            return found
        return next((m for m in self.marks.values() if m.pod == claim.victim), None)

    def _likely(self, now_ms: int | None) -> list[Preemption]:
        claimed = {seen.claim.victim_uid or seen.claim.victim for seen in self.claims}
        by_node: dict[str, list[Mark]] = defaultdict(list)
        for uid, mark in self.marks.items():
            late = now_ms is None or mark.seen_ms + self._patience_ms <= now_ms
            if not mark.taken and late and uid not in claimed and mark.pod not in claimed:
                by_node[mark.node].append(mark)
        found: list[Preemption] = []
        for node, marks in sorted(by_node.items()):
            marks.sort(key=lambda m: (m.at_ms, m.version, m.pod))
            found += [self._of_marks(node, wave) for wave in _marks_together(marks)]
        return found

    def _of_marks(self, node: str, marks: list[Mark]) -> Preemption:
        at_ms = min(mark.at_ms for mark in marks)
        highest = max(mark.priority for mark in marks)
        asking = [
            one
            for one in self.nominations.values()
            if one.node == node
            and one.priority > highest
            and not one.used
            and any(_together(one, mark) for mark in marks)
        ]
        asking.sort(key=lambda one: (-one.priority, one.version, one.pod))
        nomination = asking[0] if asking else None
        if nomination is not None:
            nomination.used = True
        for mark in marks:
            mark.taken = True
        evidence = [Evidence.CONDITION]
        if nomination is not None:
            evidence.append(Evidence.NOMINATION)
        leaving = self.leaving.get(node, {})
        return Preemption(
            preemptor=nomination.pod if nomination else "",
            preemptor_uid=nomination.uid if nomination else "",
            preemptor_kind="Pod",
            node=node,
            scheduler=nomination.scheduler if nomination else marks[0].scheduler,
            at_ms=at_ms,
            confidence=Confidence.LIKELY if len(asking) == 1 else Confidence.POSSIBLE,
            victims=tuple(
                SeenVictim(
                    pod=mark.pod,
                    uid=mark.uid,
                    evidence=(
                        *evidence[:1],
                        *([Evidence.DELETION] if mark.uid in leaving else []),
                        *evidence[1:],
                    ),
                    mark_version=mark.version,
                    marked_here=True,
                )
                for mark in sorted(marks, key=lambda m: m.pod)
            ),
            nomination_version=nomination.version if nomination else 0,
            nominated=nomination is not None,
        )

    def _possible(self, now_ms: int | None) -> list[Preemption]:
        claiming = {(s.claim.preemptor_uid, s.claim.node) for s in self.claims}
        found = []
        for one in list(self.nominations.values()):
            late = now_ms is None or one.seen_ms + self._patience_ms <= now_ms
            if one.used or not late or (one.uid, one.node) in claiming:
                continue
            one.used = True
            marked = {m.uid or m.pod for m in self.marks.values()}
            leaving = [
                pod
                for uid, pod in self.leaving.get(one.node, {}).items()
                if pod.priority < one.priority
                and uid not in marked
                and (pod.gone_ms is None or pod.gone_ms + _TOGETHER_MS >= one.seen_ms)
                and not 0 < pod.gone_version < one.since
                and pod.seen_ms <= one.seen_ms + _TOGETHER_MS
            ]
            if not leaving:
                continue
            found.append(
                Preemption(
                    preemptor=one.pod,
                    preemptor_uid=one.uid,
                    preemptor_kind="Pod",
                    node=one.node,
                    scheduler=one.scheduler,
                    at_ms=one.at_ms,
                    confidence=Confidence.POSSIBLE,
                    victims=tuple(
                        SeenVictim(
                            pod=pod.pod,
                            uid=pod.uid,
                            evidence=(Evidence.DELETION, Evidence.NOMINATION),
                        )
                        for pod in sorted(leaving, key=lambda pod: pod.pod)
                    ),
                    nomination_version=one.version,
                    nominated=True,
                )
            )
        return found


def _together(nomination: Nomination, mark: Mark) -> bool:
    return (
        abs(nomination.seen_ms - mark.seen_ms) <= _TOGETHER_MS
        and abs(nomination.at_ms - mark.at_ms) <= _TOGETHER_MS
    )


def _marks_together(marks: list[Mark]) -> Iterable[list[Mark]]:
    wave: list[Mark] = []
    for one in marks:
        if wave and one.at_ms - wave[-1].at_ms > _ONE_WAVE_MS:
            yield wave
            wave = []
        wave.append(one)
    if wave:
        yield wave
