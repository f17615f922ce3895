"""The solver's process: questions on standard input, one a line, an answer line for each.

Run as a file of its own, so that it loads the solver and nothing else. It loads the solver once
and answers each question in a process forked for it, with limits on time and memory: what one
question leaves behind in the solver, or breaks, does not reach the next one.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

import z3

_TOGETHER = 12
"""Groups of wishes that are tried at once."""

GRACE_SECONDS = 0.5
"""A process that is still there so long after its time limit is ended."""


def main() -> None:
    """Say that the solver is loaded, then answer questions until standard input ends."""
    # What is not known is supposed to be false first: a pod of which most rules do not speak is
    # found ten times as fast among 200 rules.
    z3.set_param("smt.phase_selection", 0)
    _line({})
    for line in sys.stdin:
        question = json.loads(line)
        _line(_answer(question, time.monotonic()))


def _line(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _answer(question: dict[str, Any], began: float) -> dict[str, Any]:
    """What the process of one question says."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _one(question, began, writing)
    os.close(writing)
    try:
        written, ended = _read(reading, began + question["seconds"] + GRACE_SECONDS)
    finally:
        os.close(reading)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    if not ended:
        return {"status": "unknown", "reason": "timeout"}
    if not written.endswith(b"\n"):
        return {"status": "unknown", "reason": "the solver ended without an answer"}
    return dict(json.loads(written))


def _read(reading: int, until: float) -> tuple[bytes, bool]:
    """All that is written before the pipe is closed or the time is over; was it closed?"""
    written = b""
    while select.select([reading], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(reading, 1 << 16)
        if not part:
            return written, True
        written += part
    return written, False


def _one(question: dict[str, Any], began: float, writing: int) -> None:
    """Limit this process, answer, end it."""
    try:
        memory = question["memory_bytes"]
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        seconds = int(question["seconds"]) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        _solve(question, began, writing)
    except MemoryError:
        _say(writing, {"status": "unknown", "reason": "memory"})
    finally:
        os._exit(0)


def _say(writing: int, answer: dict[str, Any]) -> None:
    os.write(writing, json.dumps(answer).encode() + b"\n")


def _solve(question: dict[str, Any], began: float, writing: int) -> None:
    solver = z3.Solver()
    end = began + question["seconds"]
    said: dict[str, Any] = {"version": z3.get_version_string()}
    try:
        solver.from_string(question["smt"])
        status, model = _best(solver, _wishes(question), end)
        said["status"] = str(status)
        if model is not None:
            said["values"] = _values(model)
        elif status == z3.unknown:
            said["reason"] = solver.reason_unknown()
    except z3.Z3Exception as exc:
        said |= {"status": "unknown", "reason": "memory" if "memory" in str(exc) else str(exc)}
    # The process is of this question alone.
    _say(writing, {**said, "seconds": time.process_time()})


def _wishes(question: dict[str, Any]) -> list[list[Any]]:
    """Groups of implications: what is wished follows from a truth value of its own."""
    implied = {_name(wish): wish for wish in z3.parse_smt2_string(question["wished"])}
    return [[implied[name] for name in group] for group in question["wishes"]]


def _checked(solver: Any, supposed: list[Any], end: float) -> Any:
    solver.set("timeout", max(1, int((end - time.monotonic()) * 1000)))
    return solver.check(*supposed)


def _best(solver: Any, groups: list[list[Any]], end: float) -> tuple[Any, Any]:
    """Are there values, and those that fulfil the first wish of each group that can be had.

    Some groups at a time: their first wishes are tried together; where they contradict each other
    or what was granted before, the last group that takes part in the contradiction falls back to
    its next wish. Where the time is over, the values are the best ones so far.
    """
    status = _checked(solver, [], end)
    model = solver.model() if status == z3.sat else None
    granted: list[Any] = []
    for first in range(0, len(groups) if model is not None else 0, _TOGETHER):
        waiting = [list(group) for group in groups[first : first + _TOGETHER]]
        while time.monotonic() < end:
            tried = [group[0] for group in waiting if group]
            for wish in tried:
                solver.add(wish)
            supposed = [wish.arg(0) for wish in tried]
            found = _checked(solver, granted + supposed, end)
            if found == z3.sat:
                model, granted = solver.model(), granted + supposed
                break
            core = {supposed.decl().name() for supposed in solver.unsat_core()}
            at_odds = [group for group in waiting if group and _name(group[0]) in core]
            if found != z3.unsat or not at_odds:
                return status, model
            at_odds[-1].pop(0)
    return status, model


def _name(wish: Any) -> str:
    return str(wish.arg(0).decl().name())


def _values(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for declared in model.decls():
        value = model[declared]
        if declared.arity() or value is None:
            continue
        if z3.is_int_value(value):
            found[declared.name()] = value.as_string()
        elif z3.is_string_value(value):
            found[declared.name()] = {"text": value.as_string()}
        elif z3.is_true(value) or z3.is_false(value):
            found[declared.name()] = z3.is_true(value)
    return found


if __name__ == "__main__":
    main()
