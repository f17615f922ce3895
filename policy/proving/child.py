"""The solver's process: one question on standard input, answers on standard output.

Run as a file of its own, so that it loads the solver and nothing else. The first line is the
answer; where it is a counterexample, further lines are smaller ones, the last the smallest.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any


def main() -> None:
    """Read the question, limit this process, answer."""
    began = time.monotonic()
    question = json.loads(sys.stdin.read())
    memory = question["memory_bytes"]
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    seconds = question["seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 2, int(seconds) + 2))
    try:
        _solve(question, began)
    except MemoryError:
        _say({"status": "unknown", "reason": "memory"})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _solve(question: dict[str, Any], began: float) -> None:
    import z3

    solver = z3.Solver()
    end = began + question["seconds"]

    def check(*supposed: Any, until: float) -> Any:
        solver.set("timeout", max(1, int((until - time.monotonic()) * 1000)))
        return solver.check(*supposed)

    version = z3.get_version_string()
    asked = time.monotonic()
    try:
        solver.from_string(question["smt"])
        status = check(until=end)
        reason = solver.reason_unknown() if status == z3.unknown else ""
        spent = time.monotonic() - asked
        answer = {"status": str(status), "reason": reason, "seconds": spent, "version": version}
        if status != z3.sat:
            _say(answer)
            return
        model = solver.model()
        _say({**answer, "values": _values(model)})
        until = min(end, time.monotonic() + question["shrink_seconds"])
        groups = [[z3.Bool(name) for name in group] for group in question["wishes"]]
        model = _shrunk(solver, model, groups, check, until)
        _say({**answer, "values": _values(model)})
    except z3.Z3Exception as exc:
        memory = "memory" in str(exc)
        _say({"status": "unknown", "reason": "memory" if memory else str(exc), "version": version})


def _shrunk(solver: Any, model: Any, groups: list[list[Any]], check: Any, until: float) -> Any:
    """A model that fulfils the first wish of each group that can be had.

    All first wishes are tried together; where they contradict each other, the last group that
    takes part in the contradiction falls back to its next wish.
    """
    import z3

    group_of = {wish.decl().name(): i for i, group in enumerate(groups) for wish in group}
    place = [0] * len(groups)
    while time.monotonic() < until:
        chosen = [group[at] for group, at in zip(groups, place, strict=True) if at < len(group)]
        status = check(*chosen, until=until)
        if status == z3.sat:
            return solver.model()
        if status != z3.unsat:
            break
        last = max((group_of[w.decl().name()] for w in solver.unsat_core()), default=None)
        if last is None:
            break
        place[last] += 1
    return model


def _values(model: Any) -> dict[str, Any]:
    import z3

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
