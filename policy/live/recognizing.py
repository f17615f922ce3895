"""Whether what answers is the cluster that was followed before under its name."""

from __future__ import annotations

from collections.abc import Callable

from policy.live.connection import Connection, Interrupted
from policy.live.patience import Patience
from policy.live.reaching import cluster_uid
from policy.live.troubles import Troubles
from policy.store import OtherCluster, Store
from policy.store.observed import ClusterIdentity


class Recognition:
    """The identity of a followed cluster: the uid of its namespace kube-system."""

    def __init__(
        self,
        store: Store,
        cluster: str,
        connection: Connection,
        patience: Patience,
        troubles: Troubles,
    ) -> None:
        self.new: ClusterIdentity | None = None  #: to be kept with what is written next
        self._store = store
        self._cluster = cluster
        self._connection = connection
        self._patience = patience
        self._troubles = troubles

    def check(self, uid: str) -> None:
        """Raises OtherCluster where another one was followed under the name, StoreError."""
        if not uid:
            said = "the server does not show the uid of the namespace kube-system:"
            said += " that it is the cluster of before cannot be checked"
            self._troubles.said("Namespace", said)
            return
        found = ClusterIdentity(uid=uid, server=self._connection.source)
        known = self._store.read.cluster_identity(self._cluster)
        if known is None:
            self.new = found
        elif known.uid != uid:
            raise OtherCluster(name=self._cluster, known=known, found=found)

    def check_again(self, again: Callable[[Interrupted], bool]) -> bool:
        """Whether what is listed anew may be taken; False where `again` gives up.

        again: gets what went wrong, waits, and says whether to go on. Raises OtherCluster where
        another cluster answers at the address now.
        """
        while True:
            try:
                uid = cluster_uid(self._connection)
                break
            except Interrupted as exc:
                if not again(exc):
                    return False
        if uid:
            self._patience.call(lambda: self.check(uid))
        return True
