"""Observed preemptions out, and what the stored states show around one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack, cast

from sqlalchemy import ColumnElement, Connection, Select, and_, or_, select

from policy.cluster.objects import Pod
from policy.observing.model import Evidence, Preemption, SeenVictim, marked_at, nominated_to
from policy.store import rows
from policy.store.errors import NotFound
from policy.store.model.state import Cause
from policy.store.observed import (
    GapRow,
    ObservationRow,
    ObservedSituation,
    ObservedVictimRow,
)
from policy.store.state.loading import cluster_id, decode
from policy.store.state.versions import chunks, find_head
from policy.store.tables import (
    CLUSTERS,
    FOLLOW_POSITIONS,
    GAPS,
    OBSERVATIONS,
    OBSERVED_VICTIMS,
    PODS,
    REVISIONS,
)

_IDS: Final = 500


class ObservationFilter(TypedDict, total=False):
    """Which observations a list shows; what is left out or None means any."""

    since_ms: int | None  #: by `now_ms`, from this instant on
    until_ms: int | None  #: by `now_ms`, before this instant
    namespace: str | None  #: of the preemptor or of any victim
    namespaces: Collection[str] | None  #: the same, of one of these
    node: str | None
    preemptor: str | None
    victim: str | None
    pod: str | None  #: the preemptor, or any victim
    verdict: str | None
    confidence: str | None
    before: tuple[int, int] | None  #: behind the one of this `now_ms` and number in the list


def not_replaced() -> ColumnElement[bool]:
    """Observations that no later and surer one took the place of."""
    later = OBSERVATIONS.alias("later")
    return ~select(1).where(later.c.replaces == OBSERVATIONS.c.id).exists()


def _base() -> Select[Any]:
    return select(*OBSERVATIONS.c, CLUSTERS.c.name.label("cluster")).join(
        CLUSTERS, CLUSTERS.c.id == OBSERVATIONS.c.cluster_id
    )


def observations(
    connection: Connection,
    cluster: str | None = None,
    *,
    limit: int | None = None,
    **wanted: Unpack[ObservationFilter],
) -> list[ObservationRow]:
    """Observed preemptions with their victims, the newest first; replaced ones are left out."""
    o, v = OBSERVATIONS.c, OBSERVED_VICTIMS.c
    query = _base().where(not_replaced()).order_by(o.now_ms.desc(), o.id.desc())
    if cluster is not None:
        query = query.where(o.cluster_id == cluster_id(connection, cluster))
    if (since_ms := wanted.get("since_ms")) is not None:
        query = query.where(o.now_ms >= since_ms)
    if (until_ms := wanted.get("until_ms")) is not None:
        query = query.where(o.now_ms < until_ms)
    namespace = wanted.get("namespace")
    for among in (None if namespace is None else [namespace], wanted.get("namespaces")):
        if among is not None:
            hit = select(v.observation_id).where(v.namespace.in_(list(among)))
            query = query.where(or_(o.preemptor_namespace.in_(list(among)), o.id.in_(hit)))
    if (victim := wanted.get("victim")) is not None:
        query = query.where(o.id.in_(select(v.observation_id).where(v.victim == victim)))
    if (pod := wanted.get("pod")) is not None:
        taken = select(v.observation_id).where(v.victim == pod)
        query = query.where(or_(o.preemptor == pod, o.id.in_(taken)))
    if (node := wanted.get("node")) is not None:
        query = query.where(or_(o.node == node, _group_took(node, wanted.get("namespaces"))))
    if (before := wanted.get("before")) is not None:
        # Not by the number alone: the one that was read before may have been pruned since.
        then, number = before
        query = query.where(or_(o.now_ms < then, and_(o.now_ms == then, o.id < number)))
    equal = {name: wanted.get(name) for name in ("preemptor", "verdict", "confidence")}
    query = query.filter_by(**{name: value for name, value in equal.items() if value is not None})
    if limit is not None:
        query = query.limit(limit)
    return _with_victims(connection, [row._asdict() for row in connection.execute(query)])


def _group_took(node: str, namespaces: Collection[str] | None) -> ColumnElement[bool]:
    """Did a pod group take room on the node? The events of one name no node, but `cluster`."""
    v = OBSERVED_VICTIMS.c
    there = select(v.observation_id).where(v.node == node)
    if namespaces is not None:
        # By the nodes of others it would show where these were.
        there = there.where(v.namespace.in_(list(namespaces)))
    return and_(OBSERVATIONS.c.preemptor_kind == "PodGroup", OBSERVATIONS.c.id.in_(there))


def _concerns(
    id: ColumnElement[int], preemptor: ColumnElement[str], namespaces: Collection[str]
) -> ColumnElement[bool]:
    """Is the preemptor of one observation, or any of its victims, of the namespaces?"""
    v = OBSERVED_VICTIMS.c
    hit = select(1).where(v.observation_id == id, v.namespace.in_(namespaces)).exists()
    return or_(preemptor.in_(namespaces), hit)


def observation(
    connection: Connection, number: int, *, namespaces: Collection[str] | None = None
) -> ObservationRow:
    """An observed preemption by its number. Raises NotFound.

    namespaces: only among those whose preemptor or any of whose victims is of these.
    """
    o = OBSERVATIONS.c
    query = _base().where(o.id == number)
    if namespaces is not None:
        query = query.where(_concerns(o.id, o.preemptor_namespace, namespaces))
    found = connection.execute(query).first()
    if found is None:
        raise no_observation(number)
    return _with_victims(connection, [found._asdict()])[0]


def no_observation(number: int) -> NotFound:
    """What is said where there is no observed preemption with that number."""
    return NotFound(
        f"there is no observed preemption {number}",
        help="`policy observed` lists them with their numbers",
    )


def _with_victims(
    connection: Connection, found: Sequence[Mapping[str, Any]]
) -> list[ObservationRow]:
    victims: dict[int, list[ObservedVictimRow]] = defaultdict(list)
    v = OBSERVED_VICTIMS.c
    names = list(ObservedVictimRow.__dataclass_fields__)
    for some in chunks([row["id"] for row in found], _IDS):
        query = select(OBSERVED_VICTIMS).where(v.observation_id.in_(some))
        for row in connection.execute(query.order_by(v.observation_id, v.position)).mappings():
            one = ObservedVictimRow(**{name: row[name] for name in names})
            victims[row["observation_id"]].append(one)
    return [
        ObservationRow.of(
            {
                **row,
                "evidence": rows.from_json(row["evidence"]),
                "detail": rows.from_json(row["detail"]),
                "victims": tuple(victims[row["id"]]),
            }
        )
        for row in found
    ]


def known_events(connection: Connection, cluster: str, uids: Collection[str]) -> set[str]:
    """Those of the events that an observation of the cluster rests on."""
    return _known(connection, OBSERVED_VICTIMS.c.event_uid, cluster, uids)


def known_victims(connection: Connection, cluster: str, uids: Collection[str]) -> set[str]:
    """Those of the pods, by uid, that are victims of an observation of the cluster."""
    return _known(connection, OBSERVED_VICTIMS.c.uid, cluster, uids)


def _known(
    connection: Connection, column: ColumnElement[str], cluster: str, uids: Collection[str]
) -> set[str]:
    head = find_head(connection, cluster)
    if head is None:
        return set()
    of_cluster = OBSERVED_VICTIMS.c.cluster_id == head.cluster_id
    return {
        uid
        for some in chunks(sorted(uids), _IDS)
        for uid in connection.execute(select(column).where(of_cluster, column.in_(some))).scalars()
    }


def follow_positions(connection: Connection, cluster: str) -> dict[str, int]:
    """The resourceVersions up to which each kind of a followed cluster was read."""
    head = find_head(connection, cluster)
    if head is None:
        return {}
    p = FOLLOW_POSITIONS.c
    query = select(p.kind, p.resource_version).where(p.cluster_id == head.cluster_id)
    return {row.kind: row.resource_version for row in connection.execute(query)}


def gaps(connection: Connection, cluster: str | None = None) -> list[GapRow]:
    """Times in which a followed cluster was not seen, the newest first."""
    g = GAPS.c
    query = select(*GAPS.c, CLUSTERS.c.name.label("cluster")).join(
        CLUSTERS, CLUSTERS.c.id == g.cluster_id
    )
    if cluster is not None:
        query = query.where(g.cluster_id == cluster_id(connection, cluster))
    names = list(GapRow.__dataclass_fields__)
    return [
        GapRow(**{name: row[name] for name in names})
        for row in connection.execute(query.order_by(g.id.desc())).mappings()
    ]


# --- what the stored states show ------------------------------------------------------------------


class _Versions:
    """The versions of a few pods, oldest first."""

    def __init__(self, connection: Connection, number: int, keys: Collection[str]) -> None:
        c = PODS.c
        self._found: dict[str, list[Any]] = defaultdict(list)
        for some in chunks(sorted(keys), _IDS):
            query = (
                select(c.key, c.valid_from, c.valid_to, c.uid, c.manifest)
                .where(c.cluster_id == number, c.key.in_(some))
                .order_by(c.key, c.valid_from)
            )
            for row in connection.execute(query):
                self._found[row.key].append(row)

    def of(self, key: str, uid: str) -> Iterator[tuple[int, int | None, Pod]]:
        """First revision, the revision that ended it, and the pod."""
        for row in self._found.get(key, ()):
            if not uid or not row.uid or row.uid == uid:
                yield row.valid_from, row.valid_to, cast("Pod", decode("Pod", row.manifest))


def situation(connection: Connection, cluster: str, preemption: Preemption) -> ObservedSituation:
    """What the states of a cluster show of a preemption: what was before it, and who took part."""
    head = find_head(connection, cluster)
    number = head.cluster_id if head is not None else -1
    # A pod group and a pod may have one name. Nominations of its own members change nothing for
    # a group that preempts: its first effect is what happens to its victims.
    named = preemption.preemptor if preemption.preemptor_kind == "Pod" else ""
    keys = {victim.pod for victim in preemption.victims} | {named} - {""}
    versions = _Versions(connection, number, keys)
    effects: list[tuple[int, bool]] = []
    if named and not preemption.again:
        effects += _nomination(versions, preemption)
    for victim in preemption.victims:
        effects += _departure(versions, victim)
    first = min(effects, default=None)
    base = None if first is None or not first[1] else first[0] - 1
    return ObservedSituation(
        base_revision=base,
        exact=base is not None and _exact(connection, number, first[0] if first else 0),
        last_revision=max((at for at, _ in effects), default=None),
        preemptor=_at(versions, named, preemption.preemptor_uid, base),
        victims={
            victim.pod: pod
            for victim in preemption.victims
            if (pod := _at(versions, victim.pod, victim.uid, base)) is not None
        },
    )


def _nomination(versions: _Versions, preemption: Preemption) -> list[tuple[int, bool]]:
    """When the preemptor was nominated to the node last; False where no state was before that."""
    found: list[tuple[int, bool]] = []
    before: Pod | None = None
    for begun, _, pod in versions.of(preemption.preemptor, preemption.preemptor_uid):
        if nominated_to(pod) == preemption.node and nominated_to(before) != preemption.node:
            found.append((begun, before is not None))
        before = pod
    return found[-1:]


def _departure(versions: _Versions, victim: SeenVictim) -> list[tuple[int, bool]]:
    """When the victim was marked; without marks, when its deletion began.

    Where another preemption of the same moment marked it, too: a scheduler that deletes a pod
    has not seen that it is leaving.
    """
    before: Pod | None = None
    last: int | None = None
    for begun, ended, pod in versions.of(victim.pod, victim.uid):
        leaves = pod.metadata.deletion_timestamp and Evidence.CONDITION not in victim.evidence
        if marked_at(pod) is not None or leaves:
            return [(begun, before is not None)]
        before, last = pod, ended
    gone = before is not None and last is not None
    return [(last, True)] if gone and last is not None else []


def _exact(connection: Connection, cluster: int, revision: int) -> bool:
    r = REVISIONS.c
    query = select(r.cause).where(r.cluster_id == cluster, r.number == revision)
    return connection.execute(query).scalar() == Cause.LIVE


def _at(versions: _Versions, key: str, uid: str, base: int | None) -> Pod | None:
    """The pod at a revision; without one, or where it came later, as it was first seen."""
    first: Pod | None = None
    for begun, ended, pod in versions.of(key, uid):
        if base is not None and begun <= base and (ended is None or ended > base):
            return pod
        first = first if first is not None else pod
    return first
