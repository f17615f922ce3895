"""Which real cluster is followed under a name: another one of that name is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from policy.store import OtherCluster, Store
from tests.acceptance.commands import Policy
from tests.support.api_server import ApiServer, kubeconfig, serving
from tests.support.live import CLUSTER, following, identity, initial, until

NAME = "single"
OURS = "98b27001-fa47-41cf-9501-d5ed6ce95e33"
THEIRS = "11111111-fa47-41cf-9501-d5ed6ce95e33"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database of every command that names none."""
    file = tmp_path / "policy.db"
    monkeypatch.setenv("POLICY_DB", str(file))
    return file


def another() -> list[dict[str, Any]]:
    """A cluster with the same names, rebuilt: its namespaces have other uids."""
    return [
        {**one, "metadata": {**one["metadata"], "uid": THEIRS}}
        if (one["kind"], one["metadata"]["name"]) == ("Namespace", "kube-system")
        else one
        for one in initial("wave-kubelet")
    ]


def refusal(name: str, first: ApiServer, second: ApiServer) -> str:
    return (
        f"cluster `{name}` of the database is the one at {first.url}, and {second.url} is another"
        f" one: the uids of their namespaces kube-system are {OURS} and {THEIRS}"
    )


def kept(url: str, cluster: str) -> tuple[int, set[Any]]:
    with Store.open(url) as store:
        state = store.state.load(cluster)
        assert store.ledger.verify().ok
    return state.revision, set(identity(state.objects))


def test_another_cluster_is_followed_under_the_name(database_url: str, tmp_path: Path) -> None:
    """It is refused at once, and nothing of it is written."""
    with serving(initial(NAME)) as first, serving(another()) as second:
        with following(database_url, first, tmp_path) as found:
            until(lambda: found.follower.figures.synced, what="the first lists")
        before = kept(database_url, CLUSTER)
        with following(database_url, second, tmp_path) as found:
            until(lambda: found.error is not None, what="the refusal")
        assert isinstance(found.error, OtherCluster)
        assert (str(found.error), kept(database_url, CLUSTER)) == (
            refusal(CLUSTER, first, second),
            before,
        )


def test_another_cluster_answers_at_the_address(database_url: str, tmp_path: Path) -> None:
    """A cluster that was rebuilt while it is followed: the follower ends."""
    with serving(initial(NAME)) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        before = kept(database_url, CLUSTER)
        server.restore(another(), 5)
        until(lambda: server.end_watches() or found.error is not None, what="the refusal")
        assert isinstance(found.error, OtherCluster)
        assert (str(found.error), kept(database_url, CLUSTER)) == (
            refusal(CLUSTER, server, server),
            before,
        )


def test_another_cluster_is_listed_under_the_name(
    policy: Policy, tmp_path: Path, database: Path
) -> None:
    """`import --kubeconfig` refuses it too; `--cluster NAME` keeps it apart."""

    def imported(server: ApiServer, cluster: str) -> tuple[int, str]:
        config = kubeconfig(tmp_path, server.url)
        done = policy("import", "--kubeconfig", config, "--cluster", cluster)
        return done.status, done.err

    with serving(initial(NAME)) as first, serving(another()) as second:
        assert imported(first, "prod")[0] == 0
        before = kept(str(database), "prod")
        status, said = imported(second, "prod")
        assert (status, refusal("prod", first, second) in said, "`--cluster NAME`" in said) == (
            1,
            True,
            True,
        )
        assert kept(str(database), "prod") == before
        assert [imported(second, "other")[0], imported(first, "prod")[0]] == [0, 0]


def test_a_dump_and_then_the_cluster(policy: Policy, tmp_path: Path, database: Path) -> None:
    """What was imported without an identity gets that of the cluster that is listed first."""
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": initial(NAME)}))
    assert policy("import", str(dump), "--cluster", "prod").status == 0
    with serving(initial(NAME)) as server:
        config = kubeconfig(tmp_path, server.url)
        assert policy("import", "--kubeconfig", config, "--cluster", "prod").status == 0
        with Store.open(str(database)) as store:
            found = store.read.cluster_identity("prod")
        assert found is not None
        assert (found.uid, found.server) == (OURS, server.url)


def test_a_cluster_without_an_identity(database_url: str, tmp_path: Path) -> None:
    """It is said, and followed all the same."""
    items = [one for one in initial(NAME) if one["metadata"]["name"] != "kube-system"]
    with (
        serving(items) as server,
        following(database_url, server, tmp_path) as found,
    ):
        until(lambda: found.follower.figures.synced, what="the first lists")
    with Store.open(database_url) as store:
        known = store.read.cluster_identity(CLUSTER)
    said = [one.trouble for one in found.occasions]
    assert (known, any("namespace kube-system" in one for one in said)) == (None, True)
