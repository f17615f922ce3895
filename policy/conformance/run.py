"""Going through recordings with several workers, in an order that never changes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from policy.conformance import (
    compare,
    groups,
    running,
    scenario,
    sessions,
    variants,
    volcano,
)
from policy.conformance.results import RecordingError, ScenarioResult
from policy.parts import HERE, Workers, map_parts
from policy.text.system import explained
from policy.typed import UNDECODABLE, undecodable

if TYPE_CHECKING:
    from policy.rules import RuleSet

_CHUNK: Final = 8
"""Scenarios that travel to a worker together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLine:
    """One line of a recording."""

    source: str
    line: int
    text: bytes


class Form(Protocol):
    """A form of recording: how to know a line of it, and how to judge one."""

    def knows(self, head: scenario.LineHead) -> bool: ...

    def judge(
        self, task: RecordingLine, rules: RuleSet | None, *, strict: bool
    ) -> ScenarioResult: ...


class Preemptions:
    """One scheduling cycle of kube-scheduler per line."""

    def knows(self, head: scenario.LineHead) -> bool:
        return head.pod is not None and bool(head.expect) and not head.config

    def judge(self, task: RecordingLine, rules: RuleSet | None, *, strict: bool) -> ScenarioResult:
        if rules is None:
            raise RecordingError(
                f"{task.source}:{task.line}: a scheduling cycle, which batch rules do not decide"
            )
        return compare.compare(scenario.parse(task.text), rules, source=task.source, strict=strict)


FORMS: Final[Sequence[Form]] = (
    variants.Variants(),
    Preemptions(),
    volcano.VolcanoCases(),
    groups.Groups(),
    running.Running(),
    sessions.Sessions(),
)

_Chunk: TypeAlias = list[RecordingLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Work on chunks of scenarios; a worker compiles the rule set once."""

    rules: RuleSet | None
    strict: bool

    @contextmanager
    def open(self) -> Iterator[Callable[[_Chunk], list[ScenarioResult]]]:
        yield lambda chunk: [_judge(task, self.rules, self.strict) for task in chunk]


def run(
    paths: Iterable[str | Path],
    rules: RuleSet | None,
    *,
    families: frozenset[str] = frozenset(),
    limit: int | None = None,
    left_out: Callable[[], None] = lambda: None,
    strict: bool = False,
    workers: Workers = HERE,
) -> Iterator[ScenarioResult]:
    """Judge the scenarios of some recordings, in the order of the files and lines.

    `families` selects (all where empty), `limit` ends after so many selected scenarios; `left_out`
    is called for each further one. Raises RecordingError for a file that cannot be read. The
    recordings were made without sampling: load the rule set with `compare.OVERRIDES`. Recorded
    sessions carry their own configuration; `rules` may be None where there is nothing else.
    """
    tasks = _tasks(paths, families, limit, left_out)
    chunks = _chunks(tasks, 1 if workers.here else _CHUNK)
    judging = Judging(rules=rules, strict=strict)
    yield from chain.from_iterable(map_parts(judging, chunks, workers))


def _tasks(
    paths: Iterable[str | Path],
    families: frozenset[str],
    limit: int | None,
    left_out: Callable[[], None],
) -> Iterator[RecordingLine]:
    taken = 0
    for path in paths:
        for number, text in _lines(Path(path)):
            try:
                head = scenario.head(text)
            except UNDECODABLE as exc:
                said = undecodable(exc).lower()
                raise RecordingError(f"{path}:{number}: not a recorded scenario: {said}") from exc
            if not any(form.knows(head) for form in FORMS):
                raise RecordingError(
                    f"{path}:{number}: not a recorded scenario",
                    help="a scenario has `id`, `family`, `cluster`, `pod` and `expect`, or `id`, "
                    "`objects`, `pending`, `now` and `expect`",
                )
            if families and head.of_family not in families:
                continue
            if limit is not None and taken >= limit:
                left_out()
            else:
                taken += 1
                yield RecordingLine(source=str(path), line=number, text=text)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        yield from scenario.lines(path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        advice = "`gzip --test` tells; copy or record the file again"
        raise RecordingError(f"{path}: gzip data is damaged or cut off", help=advice) from exc
    except (OSError, ValueError) as exc:
        said = explained(exc)
        raise RecordingError(f"{path}: {said.message}", help=said.help) from exc


def _chunks(tasks: Iterable[RecordingLine], length: int) -> Iterator[_Chunk]:
    chunk: _Chunk = []
    for task in tasks:
        chunk.append(task)
        if len(chunk) == length:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _judge(task: RecordingLine, rules: RuleSet | None, strict: bool) -> ScenarioResult:
    head = scenario.head(task.text)
    form = next(form for form in FORMS if form.knows(head))
    try:
        return form.judge(task, rules, strict=strict)
    except UNDECODABLE as exc:
        raise RecordingError(f"{task.source}:{task.line}: {undecodable(exc).lower()}") from exc
