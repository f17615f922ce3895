"""`policy rules for`"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.rules.versions import Generation


@click.command("for")
@click.argument("version", metavar="[VERSION]", required=False)
@options.db_option
@click.option(
    "--cluster",
    metavar="NAME",
    shell_complete=options.proposing("clusters"),
    help="Take the version of the cluster's nodes instead.",
)
@options.output_option
def command(version: str | None, db: str, cluster: str | None, form: str) -> int:
    """Name the rule set that decides like a version of Kubernetes, and say why.

    VERSION is what `kubectl version` says of the server: `1.30.8`, `v1.30.8+k3s1`. Without a
    patch the newest patches are meant. What a scheduler decides changes at patch releases, too.

    With `--cluster` the newest kubelet of the imported nodes counts: no kubelet is newer than its
    control plane, but the control plane may be newer than all of them.

    \b
    Example:
      policy rules for 1.30.8
      policy rules for --cluster default
    """
    from policy.rules.versions import VersionError, of_minor, of_version, parse_version

    if (version is None) == (cluster is None):
        raise options.Misused("give either a version or `--cluster`")
    if cluster is not None:
        version = _newest_kubelet(db, cluster)
        if version is None:
            return Exit.ERROR
    assert version is not None
    try:
        major, minor, patch = parse_version(version)
    except VersionError as exc:
        raise options.Misused(str(exc), help="a version is `1.30.8` or `1.30`") from exc
    of_the_minor = of_minor(major, minor)
    if patch is None:
        found = of_the_minor[-1] if of_the_minor else None
    else:
        found = of_version((major, minor, patch))
    if found is None:
        _tell_missing(version, (major, minor, patch or 0))
        return Exit.ERROR
    row = {
        "version": version,
        "rules": found.name,
        "versions": str(found.versions),
        "why": found.why,
        "description": found.description,
    }
    output.rows([row], form, columns=("version", "rules", "versions", "why"))
    others = [g for g in of_the_minor if g is not found]
    if others:
        listed = ", ".join(f"{g.name} ({g.versions})" for g in others)
        output.say(f"other patches of {major}.{minor} decide otherwise: {listed}")
    return Exit.OK


def _newest_kubelet(db: str, cluster: str) -> str | None:
    """The newest version among the nodes; None, said aloud, where no node tells one."""
    from policy.cluster.objects import Node
    from policy.rules.versions import VersionError, lowest, parse_version

    with session.open_store(db) as store:
        objects = store.state.load(cluster).objects
    told: Counter[str] = Counter()
    for node in (o for o in objects if isinstance(o, Node)):
        info = node.status.node_info
        if info is not None and info.kubelet_version:
            told[info.kubelet_version] += 1
    versions: dict[str, tuple[int, int, int]] = {}
    for text in sorted(told):
        try:
            versions[text] = lowest(parse_version(text))
        except VersionError as exc:
            output.say(f"{exc}; named by {output.number(told[text], 'node')}")
    if not versions:
        output.say(f"no node of cluster {cluster} tells its version (status.nodeInfo)")
        return None
    newest = max(versions, key=lambda text: versions[text])
    listed = ", ".join(
        f"{text} ({told[text]})" for text in sorted(versions, key=versions.__getitem__)
    )
    output.say(f"kubelets of cluster {cluster}: {listed}; its control plane may be newer")
    return newest


def _tell_missing(version: str, wanted: tuple[int, int, int]) -> None:
    from policy.rules.versions import generations

    known = generations()
    older = [g for g in known if g.versions.end <= wanted]
    newer = [g for g in known if g.versions.first > wanted]
    near: list[Generation] = [*older[-1:], *newer[:1]]
    listed = ", ".join(f"{g.name} ({g.versions})" for g in near)
    output.say(f"no shipped rule set decides like {version}; the nearest: {listed}")
