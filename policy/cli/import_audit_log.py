"""`policy import --audit-log`: preemptions from the audit log of a kube-apiserver."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from policy.cli import output, session
from policy.cli.import_observed import record, stored
from policy.cluster.objects import Pod
from policy.manifests.problems import ManifestError
from policy.observing.audit_log import AuditLog, AuditLogError
from policy.observing.observer import Observer
from policy.text.problems import Problem
from policy.typed import UNDECODABLE, undecodable

if TYPE_CHECKING:
    from policy.store import Store

_GZIP: Final = b"\x1f\x8b"
_MOST_PROBLEMS: Final = 20
_NAMED: Final = 3


def take(store: Store, cluster: str, files: Sequence[str], users: tuple[str, ...]) -> list[int]:
    """Observe what the logs show together; gives the numbers of the new observations.

    files: those of one server, in any order: what a rotation has parted belongs together. Raises
    ManifestError for what is no audit log; nothing is recorded then.
    """
    log = AuditLog(users=users)
    problems: list[Problem] = []
    for file in files:
        used = log.entries
        for number, entry in _entries(file):
            try:
                log.take(entry)
            except AuditLogError as exc:
                problems.append(Problem(source=file, line=number, message=str(exc)))
                if len(problems) == _MOST_PROBLEMS:
                    raise ManifestError(problems) from exc
        if log.entries == used:
            listed = ", ".join(f"`{user}`" for user in users)
            output.say(f"{file}: no deletion, patch or event by {listed}")
    if problems:
        raise ManifestError(problems)
    if not log.entries:
        output.say("  help: name the scheduler's user with `--scheduler-user`")
    events = {claim.event_uid for claim in log.claims}
    observer = Observer(
        recorded_events=store.read.known_events(cluster, events),
        pods=lambda: [obj for obj in stored(store, cluster) if type(obj) is Pod],
    )
    now_ms = session.clock_ms()
    for claim in log.claims:
        observer.event(claim, at_ms=now_ms)
    found = [*observer.conclude(), *log.preemptions()]
    source = ", ".join(files) if len(files) <= _NAMED else f"{files[0]} and {len(files) - 1} more"
    return record(store, cluster, sorted(found, key=lambda one: one.at_ms), source)


def _entries(file: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Entries with the numbers of their lines; gzipped files are read as they are.

    Raises ManifestError.
    """
    number = 0
    try:
        with Path(file).open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            lines = gzip.GzipFile(fileobj=raw) if packed else raw
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _entry(line)
    except UNDECODABLE as exc:
        message = f"not JSON: {undecodable(exc)}"
    except _NoEntry as exc:
        message = str(exc)
    except (gzip.BadGzipFile, EOFError, zlib.error) as exc:
        message = f"the gzipped file is damaged behind this line: {exc}"
    else:
        return
    raise ManifestError([Problem(source=file, line=number, message=message)])


class _NoEntry(ValueError):
    """JSON that is no entry of an audit log."""


def _entry(line: bytes) -> dict[str, Any]:
    value = msgspec.json.decode(line)
    if not isinstance(value, dict):
        raise _NoEntry("not an entry of an audit log")
    return value
