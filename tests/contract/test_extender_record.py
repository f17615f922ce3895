"""What extenders answered is kept with the decision, so replay needs no network."""

from __future__ import annotations

from sqlalchemy import Engine, event, text

from policy.audit.compare import Comparison, DecisionChange
from policy.audit.inputs import MissingInput, ReplayVerdict
from policy.audit.recorded import Comparing, Skipped
from policy.audit.replay import replay_all
from policy.extenders.client import HttpExtenders
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.contract.test_ledger import tampering
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.extenders import Manifest, Reply, Server, extender, json_reply

CLUSTER = objects(
    a_node("n1").cpu(4).running(a_pod("a").priority(1).cpu(4)),
    a_node("n2").cpu(4).running(a_pod("b").priority(2).cpu(4)),
    a_pod("high").priority(10).cpu(4),
)


def only_n2(request: Manifest) -> Reply:
    """The second node alone, which the engine would not choose by itself."""
    return json_reply({"NodeNameToMetaVictims": {"n2": request["NodeNameToMetaVictims"]["n2"]}})


def decided(store: Store) -> list[int]:
    """The decision on `high` made with a live extender, which is gone afterwards."""
    server = Server()
    server.verbs["preempt"] = only_n2
    rules = RuleSet.load("kube-1.35", overrides={"extenders": [extender(server, "preempt")]})
    store.record.import_objects("default", CLUSTER, at_ms=NOW_MS, source="test")
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW_MS)
    scheduler = Scheduler(journal, rules, clock=lambda: NOW_MS, seed=0, extenders=HttpExtenders())
    step = scheduler.decide("default/high")
    server.close()
    assert step.decision.node == "n2"
    assert step.recording is not None
    return [step.recording.decision_id]


def test_replay_asks_the_record_and_not_the_network(database_url: str) -> None:
    """With the extender gone, the recorded answers give the same decision."""
    with Store.open(database_url) as store:
        ids = decided(store)
        assert [r.verdict for r in replay_all(store, ids)] == [ReplayVerdict.EQUAL]


def test_the_answers_of_many_decisions_are_read_together(database_url: str) -> None:
    """One statement brings what extenders answered to all decisions of a batch."""
    server = Server()
    server.verbs["preempt"] = lambda r: json_reply(
        {"NodeNameToMetaVictims": r["NodeNameToMetaVictims"]}
    )
    rules = RuleSet.load("kube-1.35", overrides={"extenders": [extender(server, "preempt")]})
    waiting = [a_pod(f"high{i}").priority(10).cpu(4) for i in range(2)]
    with Store.open(database_url) as store:
        cluster = (*CLUSTER, *objects(*waiting))
        store.record.import_objects("default", cluster, at_ms=NOW_MS, source="test")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW_MS)
        asked = HttpExtenders()
        scheduler = Scheduler(journal, rules, clock=lambda: NOW_MS, seed=0, extenders=asked)
        steps = [scheduler.decide(f"default/high{i}") for i in range(2)]
        server.close()
        ids = [s.recording.decision_id for s in steps if s.recording is not None]
        statements: list[str] = []

        def note(*said: object) -> None:
            statements.append(str(said[2]))

        event.listen(Engine, "before_cursor_execute", note)
        verdicts = [r.verdict for r in replay_all(store, ids)]
        event.remove(Engine, "before_cursor_execute", note)
    assert verdicts == [ReplayVerdict.EQUAL, ReplayVerdict.EQUAL]
    assert sum("decision_traces" in statement for statement in statements) == 1


def test_rules_with_extenders_are_compared_with_themselves_only(database_url: str) -> None:
    """The answers of then are those to the rules that asked; others would have asked otherwise."""
    with Store.open(database_url) as store:
        [number] = decided(store)
        own = RuleSet.from_canonical(
            store.read.rule_set(store.read.decision(number).row.rule_set_digest)
        )
        [same] = Comparing(own)(store, [number])
        assert isinstance(same, Comparison)
        assert (same.change, same.after) == (DecisionChange.SAME, same.before)
        others = [{"urlPrefix": "http://127.0.0.1:9/other", "preemptVerb": "preempt"}]
        [skipped] = Comparing(RuleSet.load("kube-1.28", overrides={"extenders": others}))(
            store, [number]
        )
        assert isinstance(skipped, Skipped)
        assert skipped.missing == (MissingInput.EXTENDERS,)


def test_replay_says_which_answers_are_not_recorded(database_url: str) -> None:
    """A record without the answers is incomplete; nothing else is decided instead."""
    with Store.open(database_url) as store:
        ids = decided(store)
        with tampering(database_url) as connection:
            found = connection.execute(text("SELECT CAST(document AS TEXT) FROM decision_traces"))
            gone = found.scalar_one().replace("extenderCalls", "gone")
            cast = "CAST(:gone AS JSONB)" if connection.dialect.name == "postgresql" else ":gone"
            connection.execute(
                text(f"UPDATE decision_traces SET document = {cast}"), {"gone": gone}
            )
            connection.commit()
        [replayed] = replay_all(store, ids)
        assert (replayed.verdict, replayed.missing) == (
            ReplayVerdict.INCOMPLETE,
            (MissingInput.EXTENDERS,),
        )
