"""Asking the solver: each question in a process of its own, with limits on time and memory.

The solver's own time limit is not reliable, and its memory is never given back: a process that
hangs is ended, one that is greedy ends itself, and both are an answer that is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import z3

from policy.proving import process
from policy.proving.world import Value, unquoted


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverLimits:
    """What one question may cost."""

    seconds: float = 10.0
    memory_bytes: int = 2 * 1024**3
    shrink_seconds: float = 3.0  #: and for a counterexample that is easier to read


class SolverStatus(StrEnum):
    """What the solver says of a question: are there values under which all of it holds?"""

    SOME = "sat"
    NONE = "unsat"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverAnswer:
    """What came back."""

    status: SolverStatus
    values: Mapping[str, int | bool | str] = field(default_factory=lambda: MappingProxyType({}))
    reason: str = ""  #: why it is unknown
    seconds: float = 0.0  #: CPU time of the solver, without shrinking
    wall_seconds: float = 0.0
    version: str = ""


def version() -> str:
    """The installed solver: `z3 5.4.0`."""
    return f"z3 {z3.get_version_string()}"


def ask(
    formulas: Sequence[Value],
    wishes: Callable[[], Sequence[Sequence[Value]]] | None = None,
    limits: SolverLimits | None = None,
) -> SolverAnswer:
    """Is there an assignment under which all formulas hold?

    wishes: makes groups of alternatives that make an assignment easier to read, the better ones
    first; of each group the first is taken that can be had beside those before.
    """
    limits = limits or SolverLimits()
    found = _asked(formulas, (), limits)
    if found.status is not SolverStatus.SOME or wishes is None:
        return found
    seconds = min(limits.seconds, limits.shrink_seconds)
    easier = _asked(formulas, wishes(), replace(limits, seconds=seconds))
    return replace(
        found,
        values=easier.values if easier.status is SolverStatus.SOME else found.values,
        wall_seconds=found.wall_seconds + easier.wall_seconds,
    )


def _asked(
    formulas: Sequence[Value], wishes: Sequence[Sequence[Value]], limits: SolverLimits
) -> SolverAnswer:
    began = time.monotonic()
    names: list[list[str]] = []
    implied = []
    for i, group in enumerate(wishes):
        names.append([f"wish{i}.{j}" for j in range(len(group))])
        implied += [z3.Implies(z3.Bool(n), wish) for n, wish in zip(names[-1], group, strict=True)]
    said = process.answer_to(
        {
            "smt": _written(formulas),
            "wished": _written(implied),
            "wishes": names,
            "seconds": limits.seconds,
            "memory_bytes": limits.memory_bytes,
        }
    )
    return _answer(said, time.monotonic() - began)


def _written(formulas: Sequence[Value]) -> str:
    """Declarations and assertions, as the solver reads them."""
    solver = z3.Solver()
    solver.add(*formulas)
    return str(solver.sexpr())


def _answer(said: Mapping[str, Any], wall: float) -> SolverAnswer:
    reason = str(said.get("reason", ""))
    if "memory" in reason:
        reason = "the solver used up its memory"
    elif "timeout" in reason or "canceled" in reason or "interrupted" in reason:
        reason = "the time limit"
    return SolverAnswer(
        status=SolverStatus(said["status"]),
        values=MappingProxyType({k: _value(v) for k, v in said.get("values", {}).items()}),
        reason=reason,
        seconds=float(said.get("seconds", 0.0)),
        wall_seconds=wall,
        version=str(said.get("version", "")),
    )


def _value(value: Any) -> int | bool | str:
    if isinstance(value, dict):
        return unquoted(str(value["text"]))
    return value if isinstance(value, bool) else int(value)
