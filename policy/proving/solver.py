"""Asking the solver: each question in a process of its own, with limits on time and memory.

The solver's own time limit is not reliable, and its memory is never given back: a process that
hangs is ended, one that is greedy ends itself, and both are an answer that is unknown.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import z3

from policy.proving.world import Value, unquoted

_CHILD: Final = Path(__file__).with_name("child.py")
_GRACE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one question may cost."""

    seconds: float = 10.0
    memory_bytes: int = 2 * 1024**3
    shrink_seconds: float = 2.0  #: of these, for a counterexample that is easier to read


class SolverStatus(StrEnum):
    """What the solver says of a question: are there values under which all of it holds?"""

    SOME = "sat"
    NONE = "unsat"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back."""

    status: SolverStatus
    values: Mapping[str, int | bool | str] = field(default_factory=lambda: MappingProxyType({}))
    reason: str = ""  #: why it is unknown
    seconds: float = 0.0  #: of the solver, without starting it and without shrinking
    wall_seconds: float = 0.0
    version: str = ""


def version() -> str:
    """The installed solver: `z3 5.4.0`."""
    return f"z3 {z3.get_version_string()}"


def ask(
    formulas: Sequence[Value], wishes: Sequence[Sequence[Value]] = (), limits: Limits | None = None
) -> Answer:
    """Is there an assignment under which all formulas hold?

    wishes: groups of alternatives that make an assignment easier to read, the better ones first;
    of each group the first is taken that can be had beside those before.
    """
    limits = limits or Limits()
    began = time.monotonic()
    solver = z3.Solver()
    solver.add(*formulas)
    names: list[list[str]] = []
    for i, group in enumerate(wishes):
        names.append([f"wish{i}.{j}" for j in range(len(group))])
        for name, wish in zip(names[-1], group, strict=True):
            solver.add(z3.Implies(z3.Bool(name), wish))
    question = json.dumps(
        {
            "smt": solver.sexpr(),
            "wishes": names,
            "seconds": limits.seconds,
            "shrink_seconds": limits.shrink_seconds,
            "memory_bytes": limits.memory_bytes,
        }
    )
    lines, ended = _run(question, limits.seconds + _GRACE_SECONDS)
    wall = time.monotonic() - began
    if not lines:
        reason = "the solver ended without an answer" if ended else "the time limit"
        return Answer(status=SolverStatus.UNKNOWN, reason=reason, wall_seconds=wall)
    return _answer(lines[-1], wall)


def _run(question: str, seconds: float) -> tuple[list[dict[str, Any]], bool]:
    """The answers that a process gave, and whether it ended by itself."""
    process = subprocess.Popen(
        [sys.executable, "-P", str(_CHILD)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
    )
    ended = True
    try:
        found, _ = process.communicate(question, timeout=seconds)
    except subprocess.TimeoutExpired:
        ended = False
        process.kill()
        found, _ = process.communicate()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    # A process that was ended in the middle of a line has said all that the lines before say;
    # one that could not load the solver says so in lines of another kind.
    complete = found[: found.rfind("\n") + 1].splitlines()
    return [json.loads(line) for line in complete if line.startswith("{")], ended


def _answer(said: Mapping[str, Any], wall: float) -> Answer:
    reason = str(said.get("reason", ""))
    if "memory" in reason:
        reason = "the solver used up its memory"
    elif "timeout" in reason or "canceled" in reason or "interrupted" in reason:
        reason = "the time limit"
    return Answer(
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
