"""An import into the store: its objects, recorded watches, and the preemptions that they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from policy.audit.observed.reading import Observed, Seen, observe, shows_preemptions
from policy.cli import output, session
from policy.cluster.objects import (
    KINDS,
    NAMESPACED,
    ClusterObject,
    Node,
    Pod,
    PriorityClass,
)
from policy.manifests import ManifestSet, default_classes, resolve
from policy.manifests.collected import StreamEntry
from policy.manifests.filled import filled_in
from policy.manifests.not_modelled import not_modelled
from policy.manifests.problems import first_of
from policy.observing.model import Preemption
from policy.store import ImportResult, NotFound, PruneScope, Store
from policy.store.observed import ClusterIdentity

_LONGEST_SOURCE: Final = 200


def store(
    store: Store,
    cluster: str,
    found: ManifestSet,
    *,
    prune: PruneScope | None,
    of_ms: int | None,
    as_is: bool,
    identity: ClusterIdentity | None = None,
    version: str = "",
) -> tuple[ImportResult, list[int]]:
    """Import what was read; with it the numbers of the preemptions that were observed.

    of_ms: the time of which the listed objects are; the clock's where it is None. as_is: nothing
    that an API server would have filled in is filled in. identity: which real cluster was listed.
    version: what its server says of itself.
    """
    known = _known_classes(store, cluster, found.objects)
    read = found.listed if found.changes else found.objects
    entries: list[StreamEntry] = []
    if as_is:
        listed, entries = list(read), list(found.changes)
    elif found.changes:
        listed = resolve(found.listed, known_classes=known)
        entries = _resolved(found.changes, [*listed, *known])
    else:
        listed = resolve(found.objects, known_classes=known, places=found.places)
    for sentence in (*filled_in(read, listed).sentences(), *not_modelled(listed)):
        output.say(sentence)
    _warn_of_defaults(default_classes(found.objects, known))
    seen = Seen(listed=listed, entries=entries, claims=found.claims)
    observed = Observed()
    if shows_preemptions(seen):
        events = {one.claim.event_uid for one in found.claims}
        observed = observe(
            seen,
            stored(store, cluster),
            at_ms=session.clock_ms(),
            known_events=store.read.known_events(cluster, events),
        )
    source = _source(found.sources)
    with output.progress("storing") as progress:
        result = store.record.import_objects(
            cluster,
            listed,
            at_ms=session.clock_ms(),
            of_ms=of_ms,
            source=source,
            actor=session.actor(),
            prune=prune,
            progress=lambda done: progress(done, len(listed)),
            segments=observed.segments,
            identity=identity,
        )
    return result, record(store, cluster, observed.preemptions, source, version=version)


def scope_of(
    store: Store,
    cluster: str,
    found: ManifestSet,
    *,
    kinds: frozenset[str] | None,
    prune: bool,
) -> PruneScope | None:
    """What the import is complete for; kinds: all of a cluster's objects of these were listed."""
    if kinds is None:
        return PruneScope() if prune else None
    namespaces = {
        obj.metadata.namespace or "default"
        for obj in (*found.objects, *stored(store, cluster))
        if type(obj).__name__ in NAMESPACED
    }
    return PruneScope(kinds=kinds & KINDS.keys(), namespaces=frozenset(namespaces))


def record(
    store: Store,
    cluster: str,
    preemptions: Sequence[Preemption],
    source: str,
    *,
    version: str = "",
) -> list[int]:
    """Decide observed preemptions again and keep them; gives the numbers of the new ones.

    version: what the API server says of itself, where it was asked.
    """
    if not preemptions:
        return []
    from policy.audit.observed.recording import SchedulerRules, record_observed, server_rules

    nodes = [obj for obj in stored(store, cluster) if type(obj) is Node]
    of_server = server_rules(nodes, version=version)
    told = [
        f"{row.profile} by {row.rule_set} (environment {row.environment})"
        for row in store.read.scheduler_rules(cluster).values()
    ]
    others = f"; {', '.join(told)}" if told else ""
    output.say(f"preemptions are decided again by {of_server.rules.name}: {of_server.why}{others}")
    return record_observed(
        store,
        cluster,
        preemptions,
        SchedulerRules(store, cluster, lambda: of_server),
        at_ms=session.clock_ms(),
        source=source,
        actor=session.actor(),
    )


def _known_classes(
    store: Store, cluster: str, objects: Sequence[ClusterObject]
) -> list[PriorityClass]:
    """Classes that were imported earlier, where some pod of this import still needs one."""
    if all(type(o) is not Pod or o.spec.priority is not None for o in objects):
        return []
    return [o for o in stored(store, cluster) if type(o) is PriorityClass]


def stored(store: Store, cluster: str) -> Sequence[ClusterObject]:
    """What is stored of a cluster; nothing of one that is not there yet."""
    try:
        return store.state.load(cluster).objects
    except NotFound:
        return ()


def _resolved(entries: Sequence[StreamEntry], known: Sequence[ClusterObject]) -> list[StreamEntry]:
    """The entries with their objects as an API server would have stored them."""
    classes = [obj for obj in known if type(obj) is PriorityClass]
    classes += [one.obj for one in entries if type(one.obj) is PriorityClass]
    there = [(one.obj, one.place) for one in entries if one.obj is not None]
    made = iter(
        resolve(
            [obj for obj, _ in there],
            known_classes=classes,
            places=[place for _, place in there],
        )
    )
    return [one if one.obj is None else replace(one, obj=next(made)) for one in entries]


def _source(names: Sequence[str]) -> str:
    text = ", ".join(names)
    if len(text) <= _LONGEST_SOURCE:
        return text
    return f"{names[0][:_LONGEST_SOURCE]} and {output.number(len(names) - 1, 'more file')}"


def _warn_of_defaults(classes: Sequence[PriorityClass]) -> None:
    if len(classes) > 1:
        names = [f"PriorityClass {c.metadata.name}" for c in classes]
        output.say(
            f"warning: more than one global default: {first_of(names)}; pods without a class get"
            f" the lowest, {classes[0].metadata.name} ({classes[0].value})"
        )
