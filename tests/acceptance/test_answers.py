"""The first command that a reporter would type names the true cause: one small cluster each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from policy.store import Store
from tests.acceptance.commands import NOW, Policy, a_node, a_pod
from tests.contract.builders import BY_HAND

Cluster = Callable[..., str]
START = "2026-11-20T10:00:00Z"
LATER = "2026-11-21T00:10:00Z"


@pytest.fixture
def cluster(policy: Policy, tmp_path: Path) -> Cluster:
    """Imports objects into a database, whose file it names."""

    def imported(*objects: dict[str, Any]) -> str:
        dump, database = tmp_path / "cluster.json", str(tmp_path / "policy.db")
        dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": objects}))
        done = policy("import", dump, "--db", database)
        assert done.status == 0, done.err
        return database

    return imported


def a_budget(name: str, *, allowed: int, app: str) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": allowed},
    }


def preempted(policy: Policy, database: str, pod: str, rules: str = "kube-1.36") -> list[str]:
    """What `policy preempt` prints."""
    done = policy("preempt", pod, "--now", NOW, "--db", database, "--rules", rules)
    assert done.status == 0, done.err
    return done.out.splitlines()


def explained(policy: Policy, database: str, *arguments: str) -> str:
    done = policy("explain", "1", "--db", database, *arguments)
    assert done.status == 0, done.err
    return done.out


# --- names instead of counts ---------------------------------------------------------------------


def test_the_violated_budget_is_named_for_the_chosen_and_for_the_losing_node(
    policy: Policy, cluster: Cluster
) -> None:
    """With what it allows, in `preempt`, `explain`, `--why-not` and `v_pdb_violations`."""
    database = cluster(
        a_node("n1"),
        a_node("n2"),
        a_pod("shop/web", "n1", 0, 4, START),
        a_pod("shop/api", "n2", 1, 4, START),
        a_budget("web", allowed=0, app="web"),
        a_budget("api", allowed=0, app="api"),
        a_pod("shop/high", "", 100, 4),
    )
    of_web = "shop/web violates budget shop/web, which allows no disruption"
    of_api = "shop/api violates budget shop/api, which allows no disruption"
    assert preempted(policy, database, "shop/high")[-1] == f"  {of_web}"
    text = explained(policy, database)
    assert f"n1: {of_web}\nn2: {of_api}\n" in text
    assert explained(policy, database, "--why-not", "n2") == (
        "n2 (shop/api would leave) fell behind n1 at `lowest-top-priority`: 1 against 0;"
        f" {of_api}\n"
    )
    query = "SELECT victim, budget, allowed_before, allowed_after FROM v_pdb_violations"
    done = policy("sql", query, "--db", database, "-o", "csv")
    assert done.out.splitlines()[1:] == ["shop/web,shop/web,0,-1"]


def test_a_reprieved_pod_says_what_put_it_ahead_of_the_victim(
    policy: Policy, cluster: Cluster
) -> None:
    """Priority and start time of who stays, and the key that decided."""
    database = cluster(
        a_node("n1"),
        a_pod("shop/old", "n1", 0, 2, "2026-11-20T10:00:00Z"),
        a_pod("shop/new", "n1", 0, 2, "2026-11-20T11:00:00Z"),
        a_pod("shop/high", "", 100, 2),
    )
    preempted(policy, database, "shop/high")
    reprieved = explained(policy, database).split("Reprieved")[1].splitlines()[3]
    assert reprieved.split("  ", 1)[0] == "shop/old"
    assert "2026-11-20T10:00:00Z" in reprieved
    assert reprieved.endswith("tried before shop/new by `victim.startTime`")


def test_who_is_waited_for_is_named(policy: Policy, cluster: Cluster) -> None:
    """A pod that may not preempt yet: the victim that is leaving, where, and since when."""
    database = cluster(
        a_node("n1"), a_pod("shop/low", "n1", 0, 4, START), a_pod("shop/high", "", 100, 4)
    )
    preempted(policy, database, "shop/high")
    again = preempted(policy, database, "shop/high")
    assert again[0] == "shop/high (priority 100) may not preempt"
    assert again[2] == (
        "  shop/low on n1 (priority 0) is leaving since 2026-11-21T00:00:00Z,"
        " until 2026-11-21T00:00:30Z at most"
    )


def test_nobody_is_preempted_who_is_leaving_already(policy: Policy, cluster: Cluster) -> None:
    """The headline says that the pod waits."""
    leaving = a_pod("shop/low", "n1", 0, 4, START)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:10Z"
    database = cluster(a_node("n1"), leaving, a_pod("shop/high", "", 100, 4))
    assert preempted(policy, database, "shop/high")[0] == (
        "shop/high (priority 100) waits on n1 for 1 pod that is leaving already, and evicts none"
    )


def test_equals_stay_because_they_are_equals(policy: Policy, cluster: Cluster) -> None:
    """Not because of a rule: the pods, and the priority that they share."""
    database = cluster(a_node("n1"), a_pod("shop/low", "n1", 0, 4), a_pod("shop/new", "", 0, 4))
    assert preempted(policy, database, "shop/new")[-1] == (
        "  n1: shop/low stays: same priority (0)"
    )
    assert explained(policy, database, "--why-not", "n1") == (
        "n1: no pod on it may be evicted; shop/low stays: same priority (0)\n"
    )


def test_max_victims_says_how_many_it_would_take(
    policy: Policy, cluster: Cluster, tmp_path: Path
) -> None:
    """The node does not `still fail`: it would take more victims than the rules allow."""
    rules = tmp_path / "few.yaml"
    rules.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: few}\n"
        "extends: kube-1.36\nspec: {victims: {maxVictims: 1}}\n"
    )
    database = cluster(
        a_node("n1"),
        *(a_pod(f"shop/low-{i}", "n1", 0, 1, START) for i in range(4)),
        a_pod("shop/high", "", 100, 3),
    )
    preempted(policy, database, "shop/high", str(rules))
    assert explained(policy, database, "--why-not", "n1") == (
        "n1: 3 victims needed, maxVictims allows 1\n"
    )


def test_statuses_that_were_not_looked_into_are_counted(policy: Policy, cluster: Cluster) -> None:
    """Of ten ways in which nodes fail, eight have an example; the text says that there are more."""
    tainted = [
        a_node(f"n{i}", taints=[{"key": f"only-{i}", "value": "", "effect": "NoSchedule"}])
        for i in range(10)
    ]
    database = cluster(
        *tainted,
        *(a_node(f"m{i}") for i in range(2)),
        a_pod("shop/a", "m0", 100, 4),
        a_pod("shop/b", "m1", 100, 3),
        a_pod("shop/high", "", 100, 4),
    )
    said = preempted(policy, database, "shop/high", "kube-1.33")[-1]
    assert said == (
        "  3 rarer statuses of nodes were not looked into;"
        " `policy explain ID --why-not NODE` looks into a node"
    )
    assert said in explained(policy, database)


def test_the_pod_of_an_anti_affinity_is_named(policy: Policy, cluster: Cluster) -> None:
    """With the topology that it is in."""
    guard = a_pod("shop/guard", "n1", 900, 1, START)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "high"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    guard["spec"]["affinity"] = {"podAntiAffinity": required}
    node = a_node("n1")
    node["metadata"]["labels"] = {"zone": "a"}
    database = cluster(node, guard, a_pod("shop/high", "", 100, 1))
    assert preempted(policy, database, "shop/high")[-1] == (
        "  n1: the anti-affinity of shop/guard keeps it away (zone=a);"
        " shop/guard stays: higher priority than 100"
    )


def test_what_1_28_compares_is_labelled(policy: Policy, cluster: Cluster) -> None:
    """The first listed victim is one whose budget is violated, however low its priority."""
    database = cluster(
        a_node("n1"),
        a_pod("shop/web", "n1", 10, 2, START),
        a_pod("shop/big", "n1", 99, 2, START),
        a_budget("web", allowed=0, app="web"),
        a_pod("shop/high", "", 100, 4),
    )
    preempted(policy, database, "shop/high", "kube-1.28")
    assert (
        "`lowest-top-priority` compares the priority of the first listed victim: on n1 that is 10"
        " (shop/web), although shop/big of 99 goes as well\n"
    ) in explained(policy, database)


# --- the same instant, the same rules ------------------------------------------------------------


def busy(cluster: Cluster) -> str:
    return cluster(
        a_node("n1"),
        a_pod("shop/old", "n1", 0, 2, "2026-11-20T10:00:00Z"),
        a_pod("shop/new", "n1", 0, 2, "2026-11-20T11:00:00Z"),
        a_pod("shop/high", "", 100, 2),
    )


def test_what_if_at_a_decision_is_that_decision(policy: Policy, cluster: Cluster) -> None:
    """Its time, seed and rules; the digest is the same, and what was taken over is said."""
    database = busy(cluster)
    done = policy(
        *("preempt", "shop/high", "--now", NOW, "--seed", "7", "--rules", "kube-1.28"),
        *("--db", database, "-o", "json"),
    )
    digest = json.loads(done.out)["digest"]
    again = policy(
        "what-if", "shop/high", "--at", "decision:1", "--depth", "1", "--db", database, "-o", "json"
    )
    assert json.loads(again.out)[0]["digest"] == digest
    said = f"as decision 1 was made: for {NOW}, seed 7, rules kube-1.28\n"
    assert again.err.startswith(said)


def test_a_stored_rule_set_is_named_by_its_digest_everywhere(
    policy: Policy, cluster: Cluster
) -> None:
    """preempt, run, what-if, compare, rules show, explain, lint and diff."""
    database = busy(cluster)
    policy("preempt", "shop/high", "--now", NOW, "--rules", "kube-1.28", "--db", database)
    query = "SELECT digest FROM rule_sets"
    digest = policy("sql", query, "--db", database, "-o", "csv").out.split()[1]
    rules = ("--rules", digest[:20], "--db", database)
    for command in (
        ("preempt", "shop/high", "--dry-run", *rules),
        ("run", "--dry-run", *rules),
        ("what-if", *rules),
        ("compare", *rules),
        ("rules", "explain", digest, "--db", database),
        ("rules", "lint", digest, "--db", database),
        ("rules", "diff", digest, "kube-1.28", "--db", database),
    ):
        done = policy(*command)
        assert done.status == 0, (command, done.err)
    shown = policy("rules", "show", digest, "--db", database)
    assert shown.err == f"{digest}\n"


def test_stored_batch_rules_are_named_by_their_digest(policy: Policy, cluster: Cluster) -> None:
    """A session is held, and rules are shown, by the digest that a recorded session names."""
    database = busy(cluster)
    assert policy("batch", "run", "--now", NOW, "--db", database).status == 0
    query = "SELECT digest FROM rule_sets"
    digest = policy("sql", query, "--db", database, "-o", "csv").out.split()[1]
    again = policy("batch", "run", "--rules", digest, "--dry-run", "--db", database)
    shown = policy("rules", "show", digest, "--db", database)
    assert (again.status, shown.status, shown.err) == (0, 0, f"{digest}\n")


def test_an_environment_means_the_same_everywhere(
    policy: Policy, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--env and POLICY_ENV in run, what-if, compare and rules."""
    database = busy(cluster)
    policy("preempt", "shop/high", "--now", NOW, "--db", database)
    at = ("--db", database)
    assert policy("env", "create", "prod", *at).status == 0
    assert policy("env", "activate", "prod", "kube-1.28", "--reason", "test", *at).status == 0
    monkeypatch.setenv("POLICY_ENV", "prod")
    compared = json.loads(policy("compare", *at, "-o", "json").out)
    assert "kube-1.28" in json.dumps(compared)
    shown = [policy("rules", "show", *at), policy("rules", "show", "--env", "prod", *at)]
    assert [done.err for done in shown] == [policy("rules", "show", "kube-1.28").err] * 2
    done = policy("what-if", "shop/high", *at, "-o", "json")
    assert (done.status, policy("run", "--dry-run", *at).status) == (0, 0)
    wrong = policy("rules", "show", "kube-1.36", "--env", "prod", *at)
    assert (wrong.status, "cannot be given as an argument as well" in wrong.err) == (2, True)


def test_a_dump_is_of_the_time_that_it_is_given(
    policy: Policy, tmp_path: Path, cluster: Cluster
) -> None:
    """State and nominations have the time decided for; states come in their order."""
    dump, database = tmp_path / "d.json", str(tmp_path / "dated.db")
    items = [a_node("n1"), a_pod("shop/low", "n1", 0, 4, START), a_pod("shop/high", "", 100, 4)]
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    done = policy("import", dump, "--at", "2026-11-20 12:00", "--db", database)
    assert "`2026-11-20 12:00` is read as 2026-11-20T12:00:00Z (in UTC;" in done.err
    policy("preempt", "shop/high", "--now", NOW, "--db", database)
    query = "SELECT made_at FROM v_nominations"
    assert policy("sql", query, "--db", database, "-o", "csv").out.split()[1:] == [
        "2026-11-21T00:00:00.000Z"
    ]
    shown = policy(
        *("state", "show", "pods", "--at", "2026-11-20T23:00:00Z", "--db", database, "-o", "json")
    )
    assert "DisruptionTarget" not in shown.out
    items.append(a_node("n2"))
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    late = policy("import", dump, "--at", "2026-11-20T13:00:00Z", "--db", database)
    assert (late.status, late.err.splitlines()[0]) == (
        1,
        "cluster `default` has a state of 2026-11-21T00:00:00Z already, later than"
        " 2026-11-20T13:00:00Z",
    )


# --- from the victim -----------------------------------------------------------------------------


def owned(pod: dict[str, Any], owner: str) -> dict[str, Any]:
    kind, _, name = owner.partition("/")
    reference = {"kind": kind, "name": name, "uid": owner, "controller": True}
    pod["metadata"]["ownerReferences"] = [reference]
    return pod


@pytest.fixture
def evicted(policy: Policy, cluster: Cluster) -> str:
    """A database in which shop/web-1 of ReplicaSet/web left for shop/high, in environment prod."""
    database = cluster(
        a_node("n1"),
        a_node("n2"),
        owned(a_pod("shop/web-1", "n1", 0, 4, START), "ReplicaSet/web"),
        a_pod("shop/db", "n2", 5, 4, START),
        a_pod("shop/high", "", 100, 4),
    )
    at = ("--db", database)
    for command in (
        ("env", "create", "prod", *at),
        ("env", "activate", "prod", "kube-1.36", "--reason", "as ever", *at),
        ("preempt", "shop/high", "--env", "prod", "--now", NOW, *at),
    ):
        assert policy(*command).status == 0
    return database


@pytest.mark.parametrize(
    "name",
    [
        *("shop/web-1", "web-1", "shop/ReplicaSet/web", "ReplicaSet/web"),
        *("shop/web", "web"),
    ],
)
def test_an_eviction_is_found_from_its_victim(policy: Policy, evicted: str, name: str) -> None:
    """By pod, owner or name: preemptor, decision, node, rule, criterion, environment, activator."""
    done = policy("who", name, "--db", evicted, "-o", "json")
    [row] = json.loads(done.out)
    wanted = {
        "victim": "shop/web-1",
        "owner": "ReplicaSet/web",
        "preemptor": "shop/high",
        "node": "n1",
        "decision": 1,
        "rule": "lower-priority",
        "criterion": "lowest-top-priority",
        "environment": "prod",
        "activation_reason": "as ever",
    }
    assert {key: row[key] for key in wanted} == wanted


def test_an_eviction_is_found_by_its_time(policy: Policy, evicted: str) -> None:
    """Near a time, since one or before one; without any the status is 1."""
    at = ("--db", evicted)
    near = ("--around", "2026-11-21T00:40:00Z")
    assert policy("who", "web", *near, *at).status == 0
    assert policy("who", "web", *near, "--within", "30", *at).status == 1
    assert policy("who", "web", "--since", "2026-11-21T00:00:01Z", *at).status == 1
    day = ("--since", "2026-11-21", "--until", "2026-11-21T00:00:01Z")
    assert policy("who", "web", *day, *at).status == 0
    none = policy("who", "web", "--until", "2026-11-21T00:00:00Z", *at)
    told = "no eviction of `web` is recorded before 2026-11-21T00:00:00Z\n"
    assert (none.status, none.err) == (1, told)
    both = policy("who", "web", *near, "--until", "2026-11-21T00:00:01Z", *at)
    assert "`--until` means nothing beside `--around`" in both.err
    assert policy("who", "shop/we%", *at).err == "no eviction of `shop/we%` is recorded\n"


def test_a_time_at_the_end_of_the_calendar_is_looked_around(policy: Policy, evicted: str) -> None:
    """Up to the first and the last time that there is."""
    for typed, said in (
        ("0001-01-01T00:00:00Z", "from 0001-01-01T00:00:00Z to 0001-01-01T01:00:00Z"),
        ("9999-12-31T23:30:00Z", "from 9999-12-31T22:30:00Z to 9999-12-31T23:59:59.999Z"),
    ):
        done = policy("who", "shop/low", "--around", typed, "--db", evicted)
        told = f"no eviction of `shop/low` is recorded {said}; `--within` widens that\n"
        assert done == (1, "", told)


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("--pod", "shop/high", 1),
        ("--pod", "shop/web-1", 1),
        ("--preemptor", "shop/high", 1),
        ("--preemptor", "shop/web-1", 0),
        ("--victim", "shop/web-1", 1),
        ("--victim", "shop/high", 0),
        ("--workload", "shop/ReplicaSet/web", 1),
        ("--workload", "shop/ReplicaSet/other", 0),
    ],
)
def test_decisions_are_found_from_their_pods(
    policy: Policy, evicted: str, option: str, value: str, found: int
) -> None:
    """As preemptor or victim, or by the workload of a victim."""
    done = policy("decisions", option, value, "--db", evicted, "-o", "json")
    assert len(json.loads(done.out)) == found


@pytest.mark.parametrize("name", ["shop/web", "web", "shop//web", ""])
def test_what_is_no_workload_is_refused(policy: Policy, evicted: str, name: str) -> None:
    """It would find nothing, however long one looks; in the words of the API."""
    done = policy("decisions", "--workload", name, "--db", evicted)
    assert (done.status, done.out, done.err) == (1, "", f"`{name}` is not namespace/Kind/name\n")


def test_what_if_reads_the_past_of_then(policy: Policy, evicted: str) -> None:
    """Under rules that read other figures, too: the decision's own eviction is none of them."""
    asked = ("what-if", "shop/high", "--at", "decision:1", "--depth", "1", "--db", evicted)
    step, *_ = json.loads(policy(*asked, "--rules", "cooldown", "-o", "json").out)
    assert (step["outcome"], step["victims"]) == ("preempt", ["shop/web-1"])
    later = ("--now", "2026-11-21T00:05:00Z")
    step, *_ = json.loads(policy(*asked, *later, "--rules", "cooldown", "-o", "json").out)
    assert (step["outcome"], step["victims"]) == ("preempt", ["shop/db"])


# --- could it have been avoided? -----------------------------------------------------------------


def test_what_would_have_avoided_it_is_decided_again(policy: Policy, evicted: str) -> None:
    """The nodes that lost, the smallest change of each kind, each rule and environment alone."""
    told = policy("avoidable", "1", "--db", evicted).out.splitlines()
    assert told[1] == "decision 1 took shop/web-1 on n1 (14 h of run time)"
    done = policy("avoidable", "1", "--db", evicted, "-o", "json")
    found = json.loads(done.out)
    assert [(a["node"], a["victims"], a["eliminated_by"]) for a in found["alternatives"]] == [
        ("n2", ["shop/db"], "lowest-top-priority")
    ]
    changes = [(c["kind"], c["what"], c["instead"]["victims"]) for c in found["changes"]]
    assert changes == [
        (
            "budget",
            "a disruption budget that allows no disruption of shop app=web-1",
            ["shop/db"],
        ),
        ("priority", "priority 6 for shop/web-1 (was 0)", ["shop/db"]),
        ("node", "one more node like n1", []),
    ]
    assert [(e["what"], e["spared"]) for e in found["environments"]] == [
        ("prod (kube-1.36)", False)
    ]
    assert {r["what"] for r in found["rules"]} >= {"minimum-run-time", "pdb-hard-limit"}
    assert found["not_possible"] == []


def test_rules_of_an_environment_that_cannot_be_read_are_left_out(
    policy: Policy, evicted: str
) -> None:
    """Another version activated them: that is said, and the other answers are as they were."""
    before = json.loads(policy("avoidable", "1", "--db", evicted, "-o", "json").out)
    with Store.open(evicted) as store:
        store.record.create_environment("odd", "default", at_ms=1, actor="ann")
        store.record.activate(
            "odd", rules=BY_HAND, reason="test", source="test", at_ms=1, actor="ann"
        )
    found = json.loads(policy("avoidable", "1", "--db", evicted, "-o", "json").out)
    odd = {
        "kind": None,
        "what": "odd (by-hand)",
        "spared": False,
        "instead": None,
        "why_not": "this version cannot read its rules: missing key `apiVersion`",
    }
    assert found == {**before, "environments": [odd, *before["environments"]]}


def test_a_shipped_rule_that_spares_is_the_smallest_change(
    policy: Policy, cluster: Cluster
) -> None:
    """A pod that runs for a minute is spared by `minimum-run-time`; the preemptor waits then."""
    database = cluster(
        a_node("n1"),
        a_pod("shop/young", "n1", 0, 4, "2026-11-20T23:59:00Z"),
        a_pod("shop/high", "", 100, 4),
    )
    preempted(policy, database, "shop/high")
    done = policy("avoidable", "1", "--db", database)
    assert done.out.splitlines()[0] == (
        "shop/young would have stayed with minimum-run-time: shop/high waits (no-candidate)"
    )


def test_a_victim_without_labels_is_said_to_be_out_of_reach_of_budgets(
    policy: Policy, cluster: Cluster
) -> None:
    """In one sentence, also as JSON; a victim with labels has a budget among the changes."""
    bare = a_pod("shop/bare", "n1", 0, 4)
    bare["metadata"].pop("labels", None)
    database = cluster(a_node("n1"), bare, a_pod("shop/high", "", 100, 4))
    preempted(policy, database, "shop/high")
    sentence = (
        "A disruption budget cannot help: shop/bare has no labels, and no budget covers a pod "
        "without labels."
    )
    page = policy("avoidable", "1", "--db", database).out.splitlines()
    found = json.loads(policy("avoidable", "1", "--db", database, "-o", "json").out)
    assert (page.count(sentence), found["not_possible"]) == (1, [sentence])
    assert "budget" not in {change["kind"] for change in found["changes"]}


def test_where_no_pod_was_evicted_there_is_nothing_to_avoid(
    policy: Policy, cluster: Cluster
) -> None:
    """The command says so, and its status is 1."""
    database = cluster(a_node("n1"), a_pod("shop/high", "", 100, 4))
    preempted(policy, database, "shop/high")
    done = policy("avoidable", "1", "--db", database)
    assert (done.status, done.err) == (1, "decision 1 evicts no pod\n")


@pytest.mark.parametrize("id", ["group:1", "session:1", "observed:22"])
def test_only_of_decisions_is_said_what_would_have_avoided_them(
    policy: Policy, cluster: Cluster, id: str
) -> None:
    done = policy("avoidable", id, "--db", cluster(a_node("n1")))
    said = f"`{id}` is no decision, and `policy avoidable` takes decisions only"
    assert (done.status, said in done.err) == (2, True)


# --- what an import fills in ---------------------------------------------------------------------


def test_an_import_says_what_it_filled_in(policy: Policy, tmp_path: Path) -> None:
    """Priorities by class, requests from limits, QoS classes; `--as-is` leaves them missing."""
    classed = a_pod("shop/classed", "", 0, 1)
    del classed["spec"]["priority"]
    classed["spec"]["priorityClassName"] = "high"
    plain = a_pod("shop/plain", "", 0, 1)
    del plain["spec"]["priority"]
    classed["status"] = plain["status"] = {}
    plain["spec"]["containers"][0]["resources"] = {"limits": {"cpu": 1}}
    items = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        },
        classed,
        plain,
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    query = "SELECT name, priority FROM pods ORDER BY name"
    filled, as_is = str(tmp_path / "filled.db"), str(tmp_path / "as-is.db")
    done = policy("import", dump, "--db", filled)
    assert done.err.splitlines()[:4] == [
        "priority filled in for 1 pod as 0: no class, no global default",
        "priority filled in for 1 pod from PriorityClass high",
        "requests filled in from limits for 1 pod",
        "2 QoS classes computed from requests and limits",
    ]
    untouched = policy("import", dump, "--as-is", "--db", as_is)
    assert "priority filled in" not in untouched.err
    found = [
        policy("sql", query, "--db", database, "-o", "csv").out.split()[1:]
        for database in (filled, as_is)
    ]
    assert found == [["classed,1000", "plain,0"], ["classed,0", "plain,0"]]


# --- where a pod fits ----------------------------------------------------------------------------


def test_a_node_that_fits_too_shows_its_scores(policy: Policy, cluster: Cluster) -> None:
    """Which scorer made the difference, and by how much; of equals the first by name is taken."""
    database = cluster(
        a_node("n1"),
        a_node("n2"),
        a_node("n3"),
        a_pod("shop/busy", "n1", 0, 3, START),
        a_pod("shop/new", "", 0, 1),
    )
    preempted(policy, database, "shop/new")
    text = explained(policy, database, "--why-not", "n1")
    assert text.startswith("n1: it passes all filters too; the pod was placed on n2: ")
    assert "least-allocated " in text
    assert " points against " in text
    assert explained(policy, database, "--why-not", "n3").endswith("the first by name is taken\n")


def test_a_preference_also_holds_for_pods_that_just_fit(
    policy: Policy, cluster: Cluster, tmp_path: Path
) -> None:
    """The scorer `rule` sends the pod to the spot node, and `--why-not` shows the points."""
    spot = a_node("n2")
    spot["metadata"]["labels"] = {"pool": "spot"}
    database = cluster(
        a_node("n1"), spot, a_pod("shop/busy", "n2", 0, 2, START), a_pod("shop/new", "", 0, 1)
    )
    file = tmp_path / "spot.yaml"
    file.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: spot}\n"
        "extends: kube-1.36\nspec:\n  scoring:\n    insert:\n      - at: end\n"
        "        rule: {scorer: rule/prefer-spot, score: \"node.labels['pool'] == 'spot'\","
        " weight: 10, why: spot nodes are cheap}\n"
    )
    said = preempted(policy, database, "shop/new", str(file))
    assert said[0] == "shop/new (priority 0) fits on n2 without preemption"
    assert "rule/prefer-spot 0 against 100 (weight 10)" in explained(
        policy, database, "--why-not", "n1"
    )
    assert policy("replay", "1", "--db", database).status == 0


# --- what was decided and did not happen ---------------------------------------------------------


def test_what_a_later_import_contradicts_was_not_carried_out(
    policy: Policy, evicted: str, tmp_path: Path
) -> None:
    """The victim still runs: `decisions`, `explain` and `who` say so, and nothing counts it."""
    done = policy("import", str(tmp_path / "cluster.json"), "--at", LATER, "--db", evicted)
    assert done.status == 0, done.err
    assert "not carried out: victims of decision 1 are still there" in done.err
    listed = policy("decisions", "--outcome", "not-carried-out", "--db", evicted, "-o", "json")
    (line,) = json.loads(listed.out)
    none = policy("decisions", "--outcome", "preempt", "--db", evicted, "-o", "json")
    assert (line["id"], line["outcome"], json.loads(none.out)) == (1, "not-carried-out", [])
    assert explained(policy, evicted).splitlines()[1:3] == [
        "  not carried out: no pod left for shop/high at revision 3 (2026-11-21T00:10:00Z)",
        "  not carried out: shop/web-1 still ran at revision 3 (2026-11-21T00:10:00Z)",
    ]
    document = json.loads(explained(policy, evicted, "-o", "json"))
    assert [one["evicted"] for one in document["victims"]] == [False]
    who = policy("who", "shop/web-1", "--db", evicted)
    assert who.out.splitlines()[:2] == [
        "2026-11-21T00:00:00Z  shop/web-1 of ReplicaSet/web (priority 0) was to leave n1 for"
        " shop/high (priority 100)",
        "  not carried out: shop/web-1 still ran at revision 3 (2026-11-21T00:10:00Z)",
    ]
    assert "0 evictions of pod shop/web-1, and 1 not carried out" in who.err
    for query in ("v_preemptions", "v_who_preempts_whom", "v_victims WHERE evicted"):
        rows = policy("sql", f"SELECT 1 FROM {query}", "--db", evicted, "-o", "jsonl")
        assert (query, rows.out) == (query, "")
    nominated = policy("nominations", "--db", evicted, "-o", "json")
    view = policy("sql", "SELECT outcome FROM v_nominations", "--db", evicted, "-o", "json")
    for rows in (nominated, view):
        assert [row["outcome"] for row in json.loads(rows.out)] == ["not-carried-out"]
    assert policy("audit", "verify", "--db", evicted).status == 0
