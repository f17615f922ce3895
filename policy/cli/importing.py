"""`policy import`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from policy.cli import follow, options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.manifests import ManifestSet
    from policy.store import ImportResult, StrayPods
    from policy.store.observed import ClusterIdentity
    from policy.store.outcomes import OutcomeRow

_COLUMNS = ("kind", "added", "changed", "unchanged", "removed")


@click.command("import")
@click.argument(
    "paths",
    metavar="FILE|DIR|-...",
    nargs=-1,
    shell_complete=options.proposing("files"),
)
@options.db_option
@click.option(
    "--cluster",
    metavar="NAME",
    default=options.DEFAULT_CLUSTER,
    shell_complete=options.proposing("clusters"),
    help="Under which name the cluster is kept in the database.",
)
@click.option(
    "--prune",
    is_flag=True,
    help="The input is complete for its kinds and namespaces: stored objects that are missing in it"
    " are removed.",
)
@click.option(
    "--as-is",
    is_flag=True,
    help="Fill in nothing: a missing priority stays missing, and requests are those written down.",
)
@click.option(
    "--at",
    "of",
    metavar="TIME",
    callback=options.instant,
    help="The time of which the dump is (ISO 8601, `yesterday 14:02`); the clock by default.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Keep pods and nodes whole, so that extenders get all that kube-scheduler would send them;"
    " give it with each import.",
)
@follow.place_options
@click.option(
    "--audit-log",
    "audit_logs",
    metavar="FILE",
    multiple=True,
    help="Observe preemptions in an audit log of the API server (JSON lines, also gzipped); repeat"
    " it for a log in several files.",
)
@click.option(
    "--scheduler-user",
    "users",
    metavar="NAME",
    multiple=True,
    default=("system:kube-scheduler",),
    help="Who the scheduler is in the audit log; may be repeated.",
)
@options.limit_options
@options.output_option
def command(
    paths: tuple[str, ...],
    db: str,
    cluster: str,
    prune: bool,
    as_is: bool,
    of: datetime | None,
    whole: bool,
    kubeconfig: str | None,
    context: str | None,
    in_cluster: bool,
    audit_logs: tuple[str, ...],
    users: tuple[str, ...],
    max_object_size: int,
    max_input_size: int,
    max_objects: int,
    form: str,
) -> int:
    """Read the state of a cluster from what kubectl printed, or from its API server.

    Takes JSON and YAML: lists, single objects, several documents, JSON Lines, watch streams, each
    also gzipped; folders are searched. Kinds that decide nothing are skipped and counted. Defaults
    that an API server would have filled in (priorities, requests from limits) are filled in, and it
    is said how many; `--as-is` fills in nothing. A QoS class that the status does not give is not
    stored: rules compute it from the requests and limits that are, with `--as-is`, too.
    What an API server would refuse is refused (names, label syntax, operators, ranges, a key that
    stands twice), and so is what exceeds the limits; files are read piece by piece. Either
    everything is imported or, where anything is wrong, nothing. Importing the same again changes
    nothing; what changed becomes a new revision. A new database is created.

    Of a recorded watch (lines of `type` and `object`) every change is applied in the order of its
    server, removals too; each object is counted once, by what it was before and is afterwards, and
    what came and went in between is not. What the input shows of preemptions by the cluster's own
    scheduler (events, conditions, nominations) is recorded as well: `policy observed` lists them.
    So it is of audit logs, which change no state.

    With `--context`, `--kubeconfig` or `--in-cluster` the cluster itself is listed once (it needs
    the extra `live`): what is stored of it and is not there any more is removed.

    \b
    Example:
      kubectl get nodes,pods,pdb,priorityclasses,namespaces,services,rc,rs,sts -A -o json > c.json
      policy import c.json
      policy import --at 2026-11-21T08:00:00Z --cluster yesterday c.json
      policy import --cluster staging --prune --whole dumps/
      policy import --max-object-size 8Mi --max-input-size 16Gi cluster.json
    """
    from policy.cli import import_observed
    from policy.manifests import Limits, read
    from policy.manifests.reader import HOW_TO_EXPORT

    options.need("--audit-log", audit_logs, "users")
    limits = Limits(object_bytes=max_object_size, input_bytes=max_input_size, objects=max_objects)
    live = in_cluster or kubeconfig is not None or context is not None
    if live and paths:
        raise options.Misused("either files are imported, or a cluster is listed")
    if not (live or paths or audit_logs):
        raise options.Misused("nothing is named that is to be imported: give files")
    if not (live or paths):
        alone = "audit logs alone, which change no state"
        options.refuse_beside(alone, True, "prune", "as_is", "of", "whole")
    kinds: frozenset[str] | None = None
    identity: ClusterIdentity | None = None
    version = ""  # of the server
    with output.progress("reading") as progress:
        if live:
            from policy.extras import require

            require("live", "reading a cluster itself needs")
            from policy.live.connection import Connection, place
            from policy.live.listing import listed

            at = place(kubeconfig=kubeconfig, context=context, in_cluster=in_cluster)
            cluster_now = listed(Connection(at), limits=limits, progress=progress, whole=whole)
            found, kinds = cluster_now.read, cluster_now.kinds
            identity, version = cluster_now.identity, cluster_now.version
        elif paths:
            found = read(
                paths,
                stdin=session.standard_input(),
                progress=progress,
                limits=limits,
                whole=whole,
            )
    if audit_logs:
        from policy.cli import import_audit_log

        with session.open_store(db, write=True, create=True) as store:
            _tell_observed(import_audit_log.take(store, cluster, audit_logs, users))
        if not (live or paths):
            return Exit.OK
    if live and identity is None:
        output.say(f"{at.server} has no namespace kube-system: which cluster it is is not recorded")
    _tell(found)
    if not found.objects and not found.changes and not found.claims:
        told = "nothing to import: no object of a kind that decides anything"
        output.say(told, help=HOW_TO_EXPORT)
        return Exit.ERROR
    with session.open_store(db, write=True, create=True) as store:
        before = store.read.real_clusters()
        scope = import_observed.scope_of(store, cluster, found, kinds=kinds, prune=prune)
        result, observed = import_observed.store(
            store,
            cluster,
            found,
            prune=scope,
            of_ms=options.millis(of),
            as_is=as_is,
            identity=identity,
            version=version,
        )
        contradicted = (
            store.read.outcomes_at(cluster, result.revision) if result.new_revision else []
        )
    _print(result, form, observed, _contradicted(contradicted))
    _warn_of_strays(result.stray)
    if before and cluster not in before and result.new_revision:
        others = session.listed(before)
        output.say(f"cluster `{cluster}` is new in this database, beside {others}")
    return Exit.OK


def _tell(found: ManifestSet) -> None:
    from policy.cluster.unmodelled import notices
    from policy.text.printable import printable

    for notice in notices(found.objects):
        output.say(printable(notice))
    for sentence in found.passed_over():
        output.say(sentence)


def _warn_of_strays(stray: StrayPods) -> None:
    from policy.manifests.problems import shown

    if stray.count:
        pods = [f"Pod {pod} on {node}" for pod, node in stray.examples]
        named = ", ".join(f"`{shown(pod)}`" for pod in pods)
        more = f" and {stray.count - len(pods)} more" if stray.count > len(pods) else ""
        output.say(f"warning: on nodes that the cluster does not have: {named}{more}")
        output.say("  help: import the nodes too; until then these pods take no part in decisions")


def _print(
    result: ImportResult,
    form: str,
    observed: Sequence[int],
    contradicted: Mapping[str, Sequence[int]],
) -> None:
    rows = [
        {
            "kind": kind,
            "added": counts.added,
            "changed": counts.changed,
            "unchanged": counts.unchanged,
            "removed": counts.removed,
        }
        for kind, counts in sorted(result.kinds.items())
    ]
    if form in ("json", "yaml"):
        output.document(
            {
                "cluster": result.cluster,
                "revision": result.revision,
                "state_digest": result.state_digest,
                "new_revision": result.new_revision,
                "pods_on_unknown_nodes": result.stray.count,
                "observed": list(observed),
                **{f"contradicted_{what}s": numbers for what, numbers in contradicted.items()},
                "kinds": rows,
            },
            form,
        )
    elif rows or form != "table":  # events alone are objects of no kind that is kept
        output.rows(rows, form, columns=_COLUMNS, right=_COLUMNS[1:])
    if result.new_revision:
        output.say(f"cluster {result.cluster} is at revision {result.revision}")
    elif not result.revision:
        output.say(f"nothing changed: there is no cluster {result.cluster} yet")
    else:
        output.say(f"nothing changed: cluster {result.cluster} stays at revision {result.revision}")
    _tell_observed(observed)
    for what, numbers in contradicted.items():
        if numbers:
            first = ", ".join(map(str, numbers[:_EXAMPLES]))
            more = f" and {len(numbers) - _EXAMPLES} more" if len(numbers) > _EXAMPLES else ""
            output.say(
                f"not carried out: victims of {what} {first}{more} are still there;"
                f" `policy {_NAMING[what]}` names them"
            )


_NAMING: Final = {"decision": "explain", "session": "explain session:ID"}


def _contradicted(outcomes: Sequence[OutcomeRow]) -> dict[str, list[int]]:
    """The decisions and the sessions that the state contradicts."""
    return {
        "decision": sorted({n for one in outcomes if (n := one.decision_id) is not None}),
        "session": sorted({n for one in outcomes if (n := one.session_id) is not None}),
    }


_EXAMPLES: Final = 3


def _tell_observed(observed: Sequence[int]) -> None:
    if observed:
        count = output.number(len(observed), "preemption")
        output.say(f"observed {count} by the cluster's own scheduler; `policy observed` lists them")
