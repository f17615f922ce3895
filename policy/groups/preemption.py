"""Group preemption: all potential units leave, then one after the other is put back.

1. Every unit that the rules allow is removed, and a pass is run; where it fails, nothing helps.
2. The units are split by whether their removal breaks a budget, each part in order of importance.
3. Each is put back, the violating ones first, and a complete new pass is run: where it still
   succeeds the unit stays, else it leaves again and is a victim.
4. Where the rule set says so, exchanges are tried that evict fewer pods.

Source: kube-scheduler 1.36, workload-aware preemption (KEP-5710).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from policy.cluster.snapshot import Rows
from policy.cluster.tables import NOWHERE
from policy.decision.groups import GroupPass, GroupPreemption, PassKind, UnitTried
from policy.decision.model import RuleFired
from policy.groups.judging import PotentialUnits, eligibility, potential_units
from policy.groups.passes import CycleInputs, Passes, PassResult
from policy.groups.units import Units, find_units, violating
from policy.rules.group_rules import Nominations, ReprieveTest, UnitSearch, UnitVictimRules
from policy.rules.ruleset import ReprieveGroup

SUCCESS: Final = "Success"
UNSCHEDULABLE: Final = "Unschedulable"
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
NO_UNITS: Final = "No preemption victims found for incoming preemptor"
GROUP_UNSCHEDULABLE: Final = "pod group is unschedulable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preempted:
    """The outcome of a group's preemption."""

    result: GroupPreemption
    fired: tuple[RuleFired, ...]
    victims: tuple[tuple[int, int], ...] = ()  #: (row, position of its unit), as listed
    nodes: tuple[int, ...] = ()  #: where the deciding pass put the members

    @property
    def success(self) -> bool:
        return self.result.code == SUCCESS


def preempt(task: CycleInputs, passes: Callable[[], Passes]) -> Preempted:
    """What the group preempts. `passes` makes those of the cycle, on the whole snapshot."""
    asked = eligibility(task.snapshot, task.muster, task.groups)
    fired = (asked.fired, *asked.without_value)
    if not asked.allows:
        return _failed(UNSCHEDULABLE, asked.fired.reason, fired)
    units = find_units(task.snapshot, task.groups.units)
    potential = potential_units(units, task.muster, task.groups)
    fired = (*fired, *potential.fired)
    if not potential.units.size:
        return _failed(UNRESOLVABLE, NO_UNITS, fired)
    return _Search(task, passes(), units, potential).run(fired)


def _failed(
    code: str,
    message: str,
    fired: tuple[RuleFired, ...],
    *,
    potential: int = 0,
    passes: Sequence[GroupPass] = (),
) -> Preempted:
    result = GroupPreemption(
        code=code, message=message, units=(), potential=potential, passes=tuple(passes)
    )
    return Preempted(result=result, fired=fired)


@dataclass(slots=True, kw_only=True)
class _Try:
    """One potential unit during the reprieve."""

    unit: int
    importance: int  #: place in the order of importance
    violating: bool
    stays: bool = False
    blocked: str = ""
    message: str = ""


@dataclass(slots=True)
class _Search:
    task: CycleInputs
    passes: Passes
    units: Units
    potential: PotentialUnits
    passed: list[GroupPass] = field(default_factory=list)

    def run(self, fired: tuple[RuleFired, ...]) -> Preempted:
        rules = self.task.groups.victims
        self.passes.remove(self._pods(self.potential.units))
        fixed = rules.reprieve_test is ReprieveTest.FIXED_NODES
        emptied = self.passes.run(whole=fixed)
        self._record(PassKind.ALL_REMOVED, NOWHERE, emptied)
        if not emptied.success:
            return _failed(
                UNSCHEDULABLE,
                GROUP_UNSCHEDULABLE,
                fired,
                potential=self.potential.units.size,
                passes=self.passed,
            )
        tries = list(_ordered(self.units, self.potential.units, rules))
        given = emptied.nodes if fixed else None
        for position, one in enumerate(tries):
            self._put_back(position, one, given)
        if rules.search is UnitSearch.FEWER:
            self._exchange(tries, limit=rules.search_passes)
        return self._result(tries, given, fired)

    def _pods(self, units: Rows) -> Rows:
        parts = [self.units.pods(unit) for unit in units.tolist()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)

    def _record(self, kind: PassKind, unit: int, result: PassResult) -> None:
        self.passed.append(
            GroupPass(kind=kind, unit=unit, success=result.success, placed=result.placed)
        )

    def _pass(self, given: Sequence[int] | None) -> PassResult:
        return self.passes.run(whole=False) if given is None else self.passes.fits(given)

    def _put_back(self, position: int, one: _Try, given: Sequence[int] | None) -> None:
        rows = self.units.pods(one.unit)
        self.passes.put_back(rows)
        result = self._pass(given)
        self._record(PassKind.PUT_BACK, position, result)
        one.stays = result.success
        if result.success:
            return
        self.passes.remove(rows)
        first = result.first_misfit
        if first != NOWHERE:
            one.blocked = self.task.muster.members[first].key
            misfit = result.misfits[first]
            one.message = misfit.message(
                nodes=len(self.task.snapshot.nodes), preemption="", claims=False
            )

    def _exchange(self, tries: Sequence[_Try], *, limit: int) -> None:
        """Let a unit that stays leave instead of victims that are more pods together.

        The least important unit is tried first; neither a violation more nor a unit of higher
        priority than the victims' highest is accepted. Ends where nothing was gained or `limit`
        passes were made.
        """
        spent = 0
        gained = True
        while gained and spent < limit:
            gained = False
            for one in sorted(
                (t for t in tries if t.stays and not t.violating), key=lambda t: -t.importance
            ):
                victims = sorted((t for t in tries if not t.stays), key=lambda t: t.importance)
                if not victims or spent >= limit:
                    break
                if self.units.priority[one.unit] > self.units.priority[victims[0].unit]:
                    continue
                if self._size(one) + 1 > self._size(*victims):
                    continue
                used, gained_here = self._instead(one, victims, limit - spent)
                spent += used
                gained = gained or gained_here

    def _size(self, *tries: _Try) -> int:
        return sum(int(self.units.sizes[t.unit]) for t in tries)

    def _instead(self, one: _Try, victims: Sequence[_Try], limit: int) -> tuple[int, bool]:
        """Remove the unit, put back what then fits: passes made, and whether that was better."""
        self.passes.remove(self.units.pods(one.unit))
        back: list[_Try] = []
        used = 0
        for victim in victims:
            if used >= limit:
                break
            rows = self.units.pods(victim.unit)
            self.passes.put_back(rows)
            result = self.passes.run(whole=False)
            self._record(PassKind.EXCHANGE, NOWHERE, result)
            used += 1
            if result.success:
                back.append(victim)
            else:
                self.passes.remove(rows)
        if self._size(*back) > self._size(one):
            for victim in back:
                victim.stays, victim.blocked, victim.message = True, "", ""
            one.stays = False
            return used, True
        for victim in back:
            self.passes.remove(self.units.pods(victim.unit))
        self.passes.put_back(self.units.pods(one.unit))
        return used, False

    def _result(
        self, tries: Sequence[_Try], given: Sequence[int] | None, fired: tuple[RuleFired, ...]
    ) -> Preempted:
        snapshot, units = self.task.snapshot, self.units
        nodes: Sequence[int] = given or ()
        if given is None and self.task.groups.nominations is Nominations.PLACED:
            nodes = self.passes.run(whole=True).nodes
        leaving = sorted(
            ((t.importance, position) for position, t in enumerate(tries) if not t.stays)
        )
        result = GroupPreemption(
            code=SUCCESS,
            message="",
            units=tuple(
                UnitTried(
                    pods=tuple(snapshot.keys[row] for row in units.pods(t.unit).tolist()),
                    group=units.group(t.unit),
                    whole=bool(units.whole[t.unit]),
                    grouped=bool(units.groups[t.unit] != NOWHERE),
                    priority=int(units.priority[t.unit]),
                    start_ms=int(units.start[t.unit]),
                    violating=t.violating,
                    reprieved=t.stays,
                    blocked=t.blocked,
                    blocked_message=t.message,
                )
                for t in tries
            ),
            potential=len(tries),
            passes=tuple(self.passed),
        )
        return Preempted(
            result=result,
            fired=fired,
            victims=tuple(
                (row, position)
                for _, position in leaving
                for row in units.pods(tries[position].unit).tolist()
            ),
            nodes=tuple(nodes),
        )


def _ordered(units: Units, potential: Rows, rules: UnitVictimRules) -> Iterator[_Try]:
    """The potential units in the order in which they are put back."""
    flags = violating(units, potential, count=rules.budgets, skip_disrupted=rules.skip_disrupted)
    tries = [
        _Try(unit=unit, importance=place, violating=flag)
        for place, (unit, flag) in enumerate(zip(potential.tolist(), flags, strict=True))
    ]
    for part in rules.reprieve:
        yield from (
            t
            for t in tries
            if part is ReprieveGroup.ALL or t.violating == (part is ReprieveGroup.PDB_VIOLATING)
        )
