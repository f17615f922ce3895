"""What is true now of a cluster: its newest revision, and the versions of its objects."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar, cast

from sqlalchemy import Connection

from policy.cluster import digest
from policy.cluster.objects import Pod
from policy.store import bulk
from policy.store.errors import InvalidValue
from policy.store.tables import CLUSTERS, VERSIONS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Head:
    """A cluster and its newest revision; number 0 and the genesis digest before the first."""

    cluster_id: int
    name: str
    number: int
    digest: str
    at_ms: int | None  #: of the newest revision; None before the first


class Live(NamedTuple):
    """What is known of the version that is true now."""

    valid_from: int
    digest: str
    uid: str = ""
    nominated: str = ""  #: node that a waiting pod is nominated to


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def waiting_nomination(node: str, phase: str, nominated: str) -> str:
    """The nomination that the scheduler counts: of a pod that is neither placed nor finished."""
    return "" if node or phase in FINISHED else nominated


def nomination_of(pod: Pod) -> str:
    status = pod.status
    nominated = status.nominated_node_name
    return waiting_nomination(pod.spec.node_name, status.phase, nominated) if nominated else ""


FINISHED: Final = frozenset({"Succeeded", "Failed"})


# --- reading the head ----------------------------------------------------------------------------


def find_head(connection: Connection, name: str, *, lock: bool = False) -> Head | None:
    """The cluster's head, None where there is no such cluster.

    lock: keep every other writer of this cluster out until the transaction ends (SQLite's writers
    are alone in any case).
    """
    with bulk.together(connection):
        if lock and connection.dialect.name == "postgresql":
            # On its own: a statement reads what is there when it begins, also where it then waits.
            bulk.execute(connection, "SELECT id FROM clusters WHERE name = ? FOR UPDATE", (name,))
        found = bulk.fetch(connection, _HEAD, (name,))
    if not found:
        return None
    ((cluster_id, number, state, at_ms),) = found
    if number is None:
        number, state = 0, digest.GENESIS
    return Head(cluster_id=cluster_id, name=name, number=number, digest=state, at_ms=at_ms)


_HEAD: Final = (
    "SELECT c.id, r.number, r.digest, r.at_ms FROM clusters c"
    " LEFT JOIN revisions r ON r.cluster_id = c.id"
    " AND r.number = (SELECT max(number) FROM revisions WHERE cluster_id = c.id)"
    " WHERE c.name = ?"
)


_MAKE: Final = f"INSERT INTO {CLUSTERS.name} (name) VALUES (?) ON CONFLICT DO NOTHING"


LONGEST_NAME: Final = 253
"""Characters, as in names of most objects of the API."""


def require_name(what: str, name: str) -> None:
    """Refuse what cannot be a name. Raises InvalidValue."""
    if not name.strip():
        raise InvalidValue(f"{what} needs a name")
    if len(name) > LONGEST_NAME:
        told = f"{what} cannot have a name of {len(name)} characters"
        raise InvalidValue(told, help=f"give it one of at most {LONGEST_NAME}")
    if name in (".", ".."):
        raise InvalidValue(
            f"{what} cannot have the name `{name}`",
            help="it means a folder in addresses, and clients leave it out of them",
        )


def lock_head(connection: Connection, name: str) -> Head:
    """The locked head of a cluster that is made where it does not exist yet."""
    head = find_head(connection, name, lock=True)
    if head is None:
        require_name("a cluster", name)
        bulk.execute(connection, _MAKE, (name,))
        head = find_head(connection, name, lock=True)
        assert head is not None
    return head


def live_digests(connection: Connection, head: Head, kind: str) -> dict[str, str]:
    """Digests of all objects of a kind that are there now, by key."""
    query = (
        f"SELECT key, digest FROM {VERSIONS[kind].name} WHERE cluster_id = ? AND valid_to IS NULL"
    )
    return dict(cast("list[tuple[str, str]]", bulk.fetch(connection, query, (head.cluster_id,))))


def live_versions(
    connection: Connection, head: Head, kind: str, keys: Collection[str] | None = None
) -> dict[str, Live]:
    """Versions that are true now, by key: of the given keys, or all of the kind."""
    columns = "key, valid_from, digest"
    if kind == "Pod":
        columns += ", uid, node, phase, nominated_node"
    condition: str = ""
    values: bulk.Row = (head.cluster_id,)
    if keys is not None:
        of_keys, wanted = bulk.among(connection, keys)
        condition, values = f" AND key {of_keys}", (head.cluster_id, wanted)
    source = VERSIONS[kind].name
    query = f"SELECT {columns} FROM {source} WHERE cluster_id = ? AND valid_to IS NULL{condition}"
    found = bulk.fetch(connection, query, values)
    if kind != "Pod":
        return {key: Live(valid_from, of) for key, valid_from, of in found}
    return {
        key: Live(
            valid_from, of, uid, waiting_nomination(node, phase, nominated) if nominated else ""
        )
        for key, valid_from, of, uid, node, phase, nominated in found
    }
