"""`policy import --audit-log`: preemptions from the audit log of a kube-apiserver."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from policy.cli import output, session
from policy.cli.import_observed import record
from policy.manifests.problems import ManifestError
from policy.observing.audit_log import AuditLog, AuditLogError
from policy.observing.observer import Observer
from policy.text.problems import Problem

if TYPE_CHECKING:
    from policy.store import Store

_GZIP: Final = b"\x1f\x8b"


def take(store: Store, cluster: str, file: str, users: tuple[str, ...]) -> list[int]:
    """Observe what the log shows; gives the numbers of the new observations.

    Raises ManifestError for a file that is no audit log.
    """
    log = AuditLog(users=users)
    problems = []
    for number, line in enumerate(_lines(file), start=1):
        try:
            log.take(line)
        except AuditLogError as exc:
            problems.append(Problem(source=file, line=number, message=str(exc)))
            if len(problems) == 20:
                break
    if problems:
        raise ManifestError(problems)
    events = {claim.event_uid for claim in log.claims}
    observer = Observer(recorded_events=store.read.known_events(cluster, events))
    now_ms = session.clock_ms()
    for claim in log.claims:
        observer.event(claim, at_ms=now_ms)
    found = [*observer.conclude(), *log.preemptions()]
    if not log.entries:
        listed = ", ".join(f"`{user}`" for user in users)
        output.say(f"{file}: no deletion, patch or event by {listed}")
        output.say("  help: name the scheduler's user with `--scheduler-user`")
    return record(store, cluster, sorted(found, key=lambda one: one.at_ms), file)


def _lines(file: str) -> Iterator[dict[str, Any]]:
    """The entries; gzipped files are read as they are. Raises ManifestError."""
    with Path(file).open("rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        lines = gzip.GzipFile(fileobj=raw) if packed else raw
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                value = msgspec.json.decode(line)
            except msgspec.DecodeError as exc:
                problem = Problem(source=file, line=number, message=f"not JSON: {exc}")
                raise ManifestError([problem]) from exc
            if not isinstance(value, dict):
                message = "not an entry of an audit log"
                raise ManifestError([Problem(source=file, line=number, message=message)])
            yield value
