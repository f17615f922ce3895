"""What pages about a workload or a node look at: a cluster that is named, or all that are real."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from policy.server.service import PolicyService


@dataclass(frozen=True, slots=True, kw_only=True)
class OneCluster:
    """The cluster that a page is about, because its address names it."""

    name: str
    simulated: bool  #: is what the page shows that of a kept simulation?


def cluster_named(request: Request) -> str | None:
    """By the address; None for all clusters but those of kept simulations."""
    return request.query_params.get("cluster", "")[:253] or None


def one_cluster(
    service: PolicyService, cluster: str | None, *, something: bool
) -> OneCluster | None:
    """None where no cluster is named.

    something: is there anything in it to show? Of another cluster a viewer who is limited to
    namespaces is not told what it is, nor that it is there.
    """
    if cluster is None:
        return None
    simulated = something and cluster in service.store.read.kept_simulations()
    return OneCluster(name=cluster, simulated=simulated)
