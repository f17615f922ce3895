"""Extenders are asked over real HTTP, as kube-scheduler asks them, and recorded for replays."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from policy.cluster.snapshot import Snapshot
from policy.extenders import client
from policy.extenders.client import HttpExtenders
from policy.extenders.protocol import Answer, BadAnswer, Kind, content_of
from policy.extenders.recorded import NotRecorded, RecordedExtenders
from policy.preemption import messages
from policy.preemption.decide import DecisionError, decide
from policy.preemption.decision import Decision
from policy.rules import RuleSet
from policy.rules.ruleset import Extender

NOW = datetime(2026, 11, 21, 7, 20, tzinfo=UTC)
RECORDED = Path(__file__).parents[1] / "data" / "extender" / "shapes-1.35.json.gz"
RECORDED_URL = "http://127.0.0.1:28880/scheduler"
Manifest = dict[str, Any]

# --- a server ------------------------------------------------------------------------------------

Reply = tuple[int, bytes]
Behaviour = Callable[[Manifest], Reply]


def json_reply(value: Any, status: int = 200) -> Reply:
    return status, json.dumps(value).encode()


class Server:
    """An extender whose verbs are functions; it keeps what it was asked."""

    def __init__(self) -> None:
        self.verbs: dict[str, Behaviour] = {}
        self.asked: list[tuple[str, Manifest]] = []
        self.headers: list[dict[str, str]] = []
        self.release = threading.Event()  #: set when the test is over, for answers that hang
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                verb = self.path.rpartition("/")[2]
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = json.loads(body)
                outer.asked.append((verb, request))
                outer.headers.append(dict(self.headers))
                status, reply = outer.verbs[verb](request)
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # hung-up clients
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/scheduler"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._http.shutdown()
        self._http.server_close()

    @property
    def verbs_asked(self) -> list[str]:
        return [verb for verb, _ in self.asked]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def extender(server: Server, *verbs: str, **settings: Any) -> Manifest:
    """Configuration of an extender that is asked for these verbs."""
    return {
        "urlPrefix": f"{server.url}/",
        **{f"{verb}Verb": verb for verb in verbs},
        "httpTimeoutSeconds": 5,
        "nodeCacheCapable": True,
        **settings,
    }


def rules_with(*extenders: Manifest, base: str = "kube-1.35") -> RuleSet:
    return RuleSet.load(base, overrides={"extenders": list(extenders)})


# --- what a real scheduler did -------------------------------------------------------------------


def recorded_shapes() -> list[Any]:
    with gzip.open(RECORDED) as stream:
        shapes = json.load(stream)["shapes"]
    return [pytest.param(s, id=f"{s['run']}-{s['shape']}") for s in shapes]


def replaying(server: Server, shape: Manifest) -> None:
    """The server answers each verb as the recorded extender did."""
    for verb, recorded in shape["answers"].items():

        def reply(_: Manifest, recorded: Manifest = recorded) -> Reply:
            if "slow" in shape["shape"]:
                server.release.wait(10)
            return recorded["status"], recorded["body"].encode()

        server.verbs[verb] = reply


@pytest.mark.parametrize("shape", recorded_shapes())
def test_decisions_are_those_of_a_real_scheduler(server: Server, shape: Manifest):
    """Node, victims, event text, and the candidates that are offered, as 1.35.3 had them."""
    replaying(server, shape)
    asked = extender(
        server,
        *("filter", "prioritize", "preempt"),
        weight=1,
        httpTimeoutSeconds=1 if "slow" in shape["shape"] else 30,
        nodeCacheCapable=shape["nodeCacheCapable"],
    )
    expect = shape["expect"]
    if not {"filter", "prioritize"} & shape["answers"].keys():
        server.verbs["filter"] = server.verbs["prioritize"] = lambda _: json_reply({}, 500)
    snapshot = Snapshot.from_manifests(shape["objects"], now=NOW)
    decision = decide(snapshot, rules_with(asked), shape["pod"], extenders=HttpExtenders())
    real_text = (expect["message"] or "").replace(RECORDED_URL, server.url)
    if "[expected" in real_text:  # kube-scheduler lists these nodes in any order
        texts = sorted(real_text[real_text.index("[") + 1 : -1].split(", "))
        real_text = real_text[: real_text.index("[")] + f"[{', '.join(texts)}]"
    ours = {
        "bound": decision.effects.bind or None,
        "nominated": decision.node if decision.victims else None,
        "terminating": sorted(decision.effects.evict),
        "text": _event(decision),
        "offered": _up_to_ties(_offered(server), shape["objects"]),
    }
    assert ours == {
        "bound": expect["node"],
        "nominated": expect["nominated"],
        "terminating": expect["terminating"],
        "text": real_text,
        "offered": _up_to_ties(shape["offered"], shape["objects"]),
    }


def _event(decision: Decision) -> str:
    """Text of the FailedScheduling event."""
    if decision.trace.fits:
        return ""
    # A failure before any node has a status is told as it is.
    return (
        messages.fit_error(decision) if decision.trace.filter_statuses else decision.trace.message
    )


def _offered(server: Server) -> Manifest | None:
    """Candidates of the preempt request, whichever form it has."""
    for verb, request in server.asked:
        if verb == "preempt":
            full, meta = request["NodeNameToVictims"], request["NodeNameToMetaVictims"]
            return {
                node: {
                    "uids": [p["UID"] if full is None else p["metadata"]["uid"] for p in v["Pods"]],
                    "violations": v["NumPDBViolations"],
                }
                for node, v in (full or meta).items()
            }
    return None


def _up_to_ties(offered: Manifest | None, objects: list[Manifest]) -> Manifest | None:
    """Victims by what orders them: among equal ones kube-scheduler's sort takes any."""
    if offered is None:
        return None
    equal = {
        o["metadata"]["uid"]: (o["spec"]["priority"], o["status"].get("startTime"))
        for o in objects
        if o["kind"] == "Pod"
    }
    return {
        node: ([equal[uid] for uid in of_node["uids"]], of_node["violations"])
        for node, of_node in offered.items()
    }


# --- when who is asked what ----------------------------------------------------------------------


def node(name: str, cpu: str = "4") -> Manifest:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str, *, on: str = "", cpu: str = "1", priority: int = 0, **requests: str) -> Manifest:
    wanted = {"cpu": cpu, **{k.replace("_", "/"): v for k, v in requests.items()}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": on,
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": wanted}}],
        },
        "status": {
            "phase": "Running" if on else "Pending",
            "startTime": "2026-11-20T00:00:00Z" if on else None,
        },
    }


FULL = (
    node("n1"),
    node("n2"),
    pod("a", on="n1", cpu="4", priority=1),
    pod("b", on="n2", cpu="4", priority=2),
    pod("new", cpu="4", priority=10),
)
ROOMY = (node("n1"), node("n2"), node("n3"), pod("new"))


def decided(rules: RuleSet, *objects: Manifest) -> Decision:
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    return decide(snapshot, rules, "shop/new", extenders=HttpExtenders())


def passing(*names: str, **failed: dict[str, str]) -> Behaviour:
    """A filter that leaves these nodes; failed: FailedNodes=..., FailedAndUnresolvableNodes=..."""
    return lambda _: json_reply({"NodeNames": list(names), **failed})


def keeping(**victims: list[str]) -> Behaviour:
    """A preempt verb that leaves these victims on these nodes."""
    return lambda _: json_reply(
        {
            "NodeNameToMetaVictims": {
                n: {"Pods": [{"UID": f"uid-{p}"} for p in pods], "NumPDBViolations": 0}
                for n, pods in victims.items()
            }
        }
    )


def broken(_: Manifest) -> Reply:
    return json_reply({"Error": "boom"}, 500)


def test_filter_is_asked_only_where_a_node_passed(server: Server):
    """A pod that fits nowhere leads to a preempt question without any filter question."""
    server.verbs = {"filter": broken, "prioritize": broken, "preempt": keeping(n2=["b"])}
    rules = rules_with(extender(server, "filter", "prioritize", "preempt", weight=1))
    assert (decided(rules, *FULL).node, server.verbs_asked) == ("n2", ["preempt"])


def test_prioritize_is_asked_with_two_nodes_left_and_not_with_one(server: Server):
    """What filter leaves decides whether there is anything left to prioritize."""
    server.verbs["prioritize"] = lambda _: json_reply([])
    rules = rules_with(extender(server, "filter", "prioritize", weight=1))
    found = []
    for left in (["n2"], ["n2", "n3"]):
        server.asked.clear()
        server.verbs["filter"] = passing(*left)
        found.append((decided(rules, *ROOMY).node, server.verbs_asked))
    assert found == [("n2", ["filter"]), ("n2", ["filter", "prioritize"])]


def test_priorities_count_ten_times_their_weight(server: Server):
    """Scores up to 10 are brought to 100 and weighed; the trace holds the chosen node's."""
    scores = [{"Host": "n3", "Score": 7}, {"Host": "n2", "Score": 2}, {"Host": "gone", "Score": 9}]
    server.verbs["prioritize"] = lambda _: json_reply(scores)
    decision = decided(rules_with(extender(server, "prioritize", weight=3)), *ROOMY)
    name = f"extender {server.url}/"
    assert (decision.node, decision.trace.scores[-1]) == ("n3", (name, 3, 70))


def test_the_weight_of_an_extender_decides_how_much_its_scores_count(server: Server):
    """One point of ten for the fuller node outweighs its lower own score only with weight."""
    server.verbs["prioritize"] = lambda _: json_reply([{"Host": "n3", "Score": 1}])
    objects = (*ROOMY, pod("a", on="n3", cpu="2"))
    found = [
        decided(rules_with(extender(server, "prioritize", weight=weight)), *objects).node
        for weight in (1, 9)
    ]
    assert found == ["n1", "n3"]


def test_a_failure_of_prioritize_never_matters(server: Server):
    """The scheduler's own scores decide alone."""
    server.verbs["prioritize"] = broken
    decision = decided(rules_with(extender(server, "prioritize", weight=9)), *ROOMY)
    assert (decision.outcome.value, decision.node) == ("bind", "n1")


def test_a_nominated_node_is_asked_about_alone_and_first(server: Server):
    """Where the extender leaves it, no other node is asked about; where not, all are."""
    waiting = pod("new")
    waiting["status"]["nominatedNodeName"] = "n2"
    objects = (*ROOMY[:3], waiting)
    rules = rules_with(extender(server, "filter"))
    found = []
    for refused in ("n1", "n2"):
        server.asked.clear()
        server.verbs["filter"] = lambda request, refused=refused: json_reply(
            {"NodeNames": [n for n in request["NodeNames"] if n != refused]}
        )
        decision = decided(rules, *objects)
        found.append((decision.node, [request["NodeNames"] for _, request in server.asked]))
    assert found == [("n2", [["n2"]]), ("n1", [["n2"], ["n1", "n2", "n3"]])]


def test_extenders_are_asked_in_order_each_with_what_the_former_left(server: Server):
    """The second extender sees the first one's nodes, and its candidates."""
    other = Server()
    try:
        server.verbs = {"filter": passing("n2", "n3"), "preempt": keeping(n1=["a"])}
        other.verbs = {"filter": passing("n3"), "preempt": keeping(n1=["a"])}
        verbs = ("filter", "preempt")
        rules = rules_with(extender(server, *verbs), extender(other, *verbs))
        nodes = [decided(rules, *ROOMY).node, decided(rules, *FULL).node]
        asked = [other.asked[0][1]["NodeNames"], list(other.asked[1][1]["NodeNameToMetaVictims"])]
    finally:
        other.close()
    assert (nodes, asked) == (["n3", "n1"], [["n2", "n3"], ["n1"]])


def test_an_extender_is_not_asked_about_pods_without_its_resources(server: Server):
    """managedResources: requests and limits of containers, also of init containers."""
    limited = pod("new")
    limited["spec"]["initContainers"] = [
        {"name": "first", "resources": {"limits": {"example.com/gpu": "0"}}}
    ]
    server.verbs["filter"] = passing("n2")
    managed = [{"name": "example.com/gpu"}]
    rules = rules_with(extender(server, "filter", managedResources=managed))
    nodes = [decided(rules, *ROOMY[:3], new).node for new in (pod("new"), limited)]
    assert (nodes, server.verbs_asked) == (["n1", "n2"], ["filter"])


def test_a_resource_may_be_left_to_its_extender(server: Server):
    """ignoredByScheduler: the node lists no such resource, and the pod fits all the same."""
    server.verbs["filter"] = passing("n2")
    found = []
    for ignored in (False, True):
        managed = [{"name": "example.com/gpu", "ignoredByScheduler": ignored}]
        rules = rules_with(extender(server, "filter", managedResources=managed))
        new = pod("new", **{"example.com_gpu": "1"})
        found.append(decided(rules, *ROOMY[:3], new).node)
    assert found == [None, "n2"]


def test_without_verbs_nobody_is_asked(server: Server):
    """An extender that only binds has no say in where."""
    decision = decided(rules_with(extender(server)), *ROOMY)
    assert (decision.node, decision.trace.extender_calls, server.asked) == ("n1", (), [])


# --- the request ---------------------------------------------------------------------------------


def test_full_form_holds_the_objects_and_null_for_the_other_form(server: Server):
    """Without a node cache the extender gets nodes and pods, keys as Go writes them."""
    server.verbs = {"filter": passing(), "preempt": keeping(n1=["a"])}
    rules = rules_with(extender(server, "filter", "preempt", nodeCacheCapable=False))
    decided(rules, *ROOMY)
    decided(rules, *FULL)
    (_, filtering), (_, preempting) = server.asked
    assert (
        list(filtering),
        [n["metadata"]["name"] for n in filtering["Nodes"]["items"]],
        filtering["NodeNames"],
        filtering["Pod"]["metadata"]["name"],
        {n: v["Pods"][0]["spec"]["priority"] for n, v in preempting["NodeNameToVictims"].items()},
        preempting["NodeNameToMetaVictims"],
        server.headers[0]["Content-Type"],
    ) == (
        ["Pod", "Nodes", "NodeNames"],
        ["n1", "n2", "n3"],
        None,
        "new",
        {"n1": 1, "n2": 2},
        None,
        "application/json",
    )


# --- failures ------------------------------------------------------------------------------------


def test_a_failed_filter_ends_the_cycle_unless_it_may_be_ignored(server: Server):
    """Otherwise nothing is tried, and the pod keeps waiting with the extender's words."""
    server.verbs["filter"] = lambda _: json_reply({"NodeNames": ["n2"], "Error": "cannot decide"})
    found = []
    for ignorable in (False, True):
        rules = rules_with(extender(server, "filter", ignorable=ignorable))
        decision = decided(rules, *ROOMY)
        found.append((decision.outcome.value, decision.node, decision.trace.message))
    assert found == [("error", None, "cannot decide"), ("bind", "n1", "")]


def test_a_failed_preempt_ends_the_preemption_unless_it_may_be_ignored(server: Server):
    """An ignorable extender leaves the candidates as they were."""
    server.verbs["preempt"] = keeping(n2=["stranger"])
    found = []
    for ignorable in (False, True):
        rules = rules_with(extender(server, "preempt", ignorable=ignorable))
        decision = decided(rules, *FULL)
        found.append((decision.outcome.value, decision.node, decision.trace.message))
    text = (
        f"preemption: extender: {server.url}/ claims to preempt pod (UID: &{{uid-stranger}}) on "
        "node: n2, but the pod is not found on that node"
    )
    assert found == [("error", None, text), ("preempt", "n1", "")]


@pytest.mark.parametrize(
    ("answer", "node"),
    [
        ({"n1": {"Pods": []}, "n2": {"Pods": [{"UID": "uid-b"}]}}, "n2"),
        ({"n1": None, "n2": {"Pods": [{"UID": "uid-b"}]}}, "n2"),
        ({"n1": {"Pods": []}, "n2": None}, None),
    ],
)
def test_an_ignorable_extender_loses_only_the_nodes_without_victims(
    server: Server, answer: Manifest, node: str | None
):
    """Nodes without victims are dropped; a null entry, which crashes the original, is one."""
    server.verbs["preempt"] = lambda _: json_reply({"NodeNameToMetaVictims": answer})
    rules = rules_with(extender(server, "preempt", ignorable=True))
    assert decided(rules, *FULL).node == node


def test_a_nomination_stays_where_an_extender_leaves_no_candidate(server: Server):
    """The dry run found candidates, so the pod's nomination is not taken away."""
    waiting = pod("new", cpu="4", priority=10)
    waiting["status"]["nominatedNodeName"] = "n1"
    server.verbs["preempt"] = keeping()
    decision = decided(rules_with(extender(server, "preempt")), *FULL[:4], waiting)
    assert (decision.outcome.value, decision.effects.nomination.value, decision.trace.message) == (
        "no-candidate",
        "leave",
        "preemption: no candidate node for preemption",
    )


def test_a_pod_that_only_the_extender_wants_to_leave_says_so(server: Server):
    """Added victims are evicted, and told apart from those that no filter let come back."""
    small = pod("small", on="n1", cpu="0", priority=50)
    server.verbs["preempt"] = keeping(n1=["a", "small"])
    decision = decided(rules_with(extender(server, "preempt")), *FULL, small)
    assert [(v.pod, v.filter) for v in decision.victims] == [
        ("shop/a", "resources"),
        ("shop/small", "extender"),
    ]


@pytest.mark.parametrize(("base", "dry_run"), [("kube-1.35", ["n1"]), ("kube-1.28", ["n1", "n3"])])
def test_failed_nodes_are_dry_run_unresolvable_ones_are_not(
    server: Server, base: str, dry_run: list[str]
):
    """FailedAndUnresolvableNodes wins; a node left out without a word is dry-run up to 1.31."""
    server.verbs["filter"] = passing(
        FailedNodes={"n1": "busy", "n2": "busy"}, FailedAndUnresolvableNodes={"n2": "never"}
    )
    decision = decided(rules_with(extender(server, "filter"), base=base), *ROOMY)
    statuses = decision.trace.filter_statuses
    assert (
        list(decision.trace.potential_nodes),
        statuses["n1"].reasons,
        statuses["n2"].reasons,
    ) == (
        dry_run,
        ("busy",),
        ("never",),
    )


def test_a_later_extenders_word_about_a_node_counts(server: Server):
    """The second extender takes back, or takes away, the hope that the first one left."""
    other = Server()
    try:
        server.verbs["filter"] = passing(
            "n3", FailedNodes={"n1": "busy"}, FailedAndUnresolvableNodes={"n2": "never"}
        )
        other.verbs["filter"] = passing(
            FailedNodes={"n2": "later"}, FailedAndUnresolvableNodes={"n1": "gone", "n3": "gone"}
        )
        decision = decided(
            rules_with(extender(server, "filter"), extender(other, "filter")), *ROOMY
        )
    finally:
        other.close()
    statuses = {n: (s.code.label, s.reasons) for n, s in decision.trace.filter_statuses.items()}
    assert statuses == {
        "n1": ("UnschedulableAndUnresolvable", ("gone",)),
        "n2": ("Unschedulable", ("later",)),
        "n3": ("UnschedulableAndUnresolvable", ("gone",)),
    }


def test_a_filter_may_leave_only_nodes_that_it_was_asked_about(server: Server):
    """A name that was not in the request is a failure of the call."""
    server.verbs["filter"] = passing("n1", "elsewhere")
    decision = decided(rules_with(extender(server, "filter")), *ROOMY)
    assert (decision.outcome.value, decision.trace.message) == (
        "error",
        f'extender "{server.url}/" claims a filtered node "elsewhere" which is not found in the '
        "input node list",
    )


# --- the wire ------------------------------------------------------------------------------------


def ask(url: str, kind: Kind = Kind.PREEMPT, *, seconds: int = 5) -> Answer:
    of = Extender(
        url_prefix=url,
        filter_verb="filter",
        prioritize_verb="prioritize",
        preempt_verb="preempt",
        weight=1,
        http_timeout_seconds=seconds,
        node_cache_capable=True,
        ignorable=False,
        managed_resources=(),
    )
    return HttpExtenders().ask(kind, of, b"{}")


def test_status_200_alone_is_an_answer(server: Server):
    """Every other status fails the call, whatever its body says."""
    found = []
    for status in (200, 201, 204, 302, 404, 500):
        server.verbs["preempt"] = lambda _, status=status: (status, b"{}" if status != 204 else b"")
        answer = ask(server.url)
        found.append((answer.status, answer.error))
    url = f"{server.url}/preempt"
    assert found == [
        (200, ""),
        *(
            (status, f"failed preempt with extender at URL {url}, code {status}")
            for status in (201, 204, 302, 404, 500)
        ),
    ]


def test_nobody_listening_is_a_failed_call():
    """The words are those of the socket."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        answer = ask(url)
    assert answer == Answer(status=0, error=f'Post "{url}/preempt": connection refused', content="")


def test_the_timeout_covers_the_whole_exchange():
    """A peer that sends a byte now and then is cut off when the time is over."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def drip() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not stop.wait(0.1):
                try:
                    peer.sendall(b" ")
                except OSError:
                    return

    threading.Thread(target=drip, daemon=True).start()
    started = time.monotonic()
    answer = ask(f"http://127.0.0.1:{listener.getsockname()[1]}", seconds=1)
    took = time.monotonic() - started
    stop.set()
    listener.close()
    assert (answer.error, took < 3) == (
        "context deadline exceeded (Client.Timeout or context cancellation while reading body)",
        True,
    )


def test_an_answer_that_never_ends_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch):
    """More bytes than any cluster needs are a failed call, not a full memory."""
    monkeypatch.setattr(client, "MAX_BYTES", 1000)
    server.verbs["preempt"] = lambda _: (200, b" " * 100_000)
    assert "the answer is larger than 1000 bytes" in ask(server.url).error


@pytest.mark.parametrize(
    ("kind", "body", "read"),
    [
        (Kind.PREEMPT, b'{"nodenametometavictims":{"n":{"pods":[{"uid":"u"}]}}} trailing', ["n"]),
        (Kind.PREEMPT, b" null", []),
        (Kind.PREEMPT, b'{"NodeNameToVictims":{"n":{}}}', []),
        (Kind.PREEMPT, b'{"NodeNameToMetaVictims":{"n":null}}', ["n"]),
    ],
)
def test_answers_are_read_as_go_reads_them(kind: Kind, body: bytes, read: list[str]):
    """Keys in any case, the first value only, null for nothing, unknown keys ignored."""
    content = json.loads(content_of(kind, body, names_only=True))
    assert list(content["NodeNameToMetaVictims"]) == read


@pytest.mark.parametrize(
    ("body", "names_only", "names"),
    [
        (b'{"Nodes":{"items":[{"metadata":{"name":"a"}}]},"NodeNames":["b"]}', True, ["b"]),
        (b'{"Nodes":{"items":[{"metadata":{"name":"a"}}]},"NodeNames":["b"]}', False, ["a"]),
        (b'{"Nodes":{"items":[{"metadata":{"name":"a"}}]},"NodeNames":null}', True, ["a"]),
        (b'{"NodeNames":["b"]}', False, None),
        (b'{"NODENAMES":[]}', True, []),
        (b"{}", True, None),
    ],
)
def test_node_names_count_only_for_an_extender_with_a_node_cache(
    body: bytes, names_only: bool, names: list[str] | None
):
    """Otherwise, and where they are absent, the full nodes do; without both, none pass."""
    content = json.loads(content_of(Kind.FILTER, body, names_only=names_only))
    assert content["NodeNames"] == names


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (Kind.FILTER, b"", "EOF"),
        (Kind.FILTER, b"<html>", "invalid character '<' looking for beginning of value"),
        (Kind.FILTER, b'{"NodeNames":["a"', "unexpected EOF"),
        (Kind.FILTER, b"[]", "cannot unmarshal array into ExtenderFilterResult"),
        (Kind.FILTER, b'{"FailedNodes":{"a":1}}', "cannot unmarshal number into FailedNodes"),
        (Kind.PRIORITIZE, b'[{"Host":"a","Score":1.5}]', "cannot unmarshal number into "),
        (Kind.PRIORITIZE, b'[{"Host":"a","Score":9223372036854775808}]', "cannot unmarshal number"),
        (Kind.PRIORITIZE, b'[{"Host":"a","Score":NaN}]', "invalid character 'N'"),
        (Kind.PREEMPT, b'{"NodeNameToMetaVictims":[]}', "cannot unmarshal array into "),
        (Kind.PREEMPT, b"[" * 100_000, "exceeded max depth"),
    ],
)
def test_what_is_no_answer_says_why(kind: Kind, body: bytes, message: str):
    """A malformed body fails the call with the words of Go's decoder."""
    with pytest.raises(BadAnswer) as error:
        content_of(kind, body, names_only=True)
    assert str(error.value).startswith(message)


# --- the record ----------------------------------------------------------------------------------


@pytest.mark.parametrize("objects", [ROOMY, FULL])
def test_a_recorded_decision_is_made_again_without_a_network(
    server: Server, objects: tuple[Manifest, ...]
):
    """The answers are part of the decision: replayed from it, the digest is the same."""
    server.verbs = {
        "filter": passing("n2", "n3"),
        "prioritize": lambda _: json_reply([{"Host": "n3", "Score": 10}]),
        "preempt": keeping(n2=["b"]),
    }
    rules = rules_with(extender(server, "filter", "prioritize", "preempt", weight=5))
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    decision = decide(snapshot, rules, "shop/new", extenders=HttpExtenders())
    asked = len(server.asked)
    recorded = RecordedExtenders(decision.trace.extender_calls)
    again = decide(snapshot, rules, "shop/new", extenders=recorded)
    assert (again.digest, len(decision.trace.extender_calls), len(server.asked)) == (
        decision.digest,
        asked,
        asked,
    )


def test_a_question_that_was_asked_twice_is_answered_twice(server: Server):
    """The nominated node, alone in the cluster, is asked about again after a failure."""
    waiting = pod("new")
    waiting["status"]["nominatedNodeName"] = "n1"
    replies = [json_reply({}, 500), json_reply({"NodeNames": ["n1"]})]
    server.verbs["filter"] = lambda _: replies.pop(0)
    rules = rules_with(extender(server, "filter"))
    decision = decided(rules, node("n1"), waiting)
    calls = decision.trace.extender_calls
    snapshot = Snapshot.from_manifests([node("n1"), waiting], now=NOW)
    again = decide(snapshot, rules, "shop/new", extenders=RecordedExtenders(calls))
    assert ([c.status for c in calls], decision.node, again.digest) == (
        [500, 200],
        "n1",
        decision.digest,
    )


def test_failures_are_recorded_too(server: Server):
    """A replay meets the same failure, with the same words."""
    server.verbs["preempt"] = broken
    rules = rules_with(extender(server, "preempt"))
    decision = decided(rules, *FULL)
    (call,) = decision.trace.extender_calls
    recorded = RecordedExtenders([call])
    snapshot = Snapshot.from_manifests(FULL, now=NOW)
    again = decide(snapshot, rules, "shop/new", extenders=recorded)
    assert (call.verb, call.status, call.answer, again.digest) == (
        "preempt",
        500,
        "",
        decision.digest,
    )


def test_a_record_answers_no_other_question(server: Server):
    """On another cluster the request differs, and the record does not pretend to know."""
    server.verbs["filter"] = passing("n1")
    rules = rules_with(extender(server, "filter"))
    calls = decided(rules, *ROOMY).trace.extender_calls
    smaller = Snapshot.from_manifests(ROOMY[1:], now=NOW)
    with pytest.raises(NotRecorded, match="no recorded answer of `http"):
        decide(smaller, rules, "shop/new", extenders=RecordedExtenders(calls))


def test_extenders_must_be_answered_for(server: Server):
    """A rule set that names extenders is not decided as if they agreed."""
    snapshot = Snapshot.from_manifests(ROOMY, now=NOW)
    with pytest.raises(DecisionError, match="nobody answers for them"):
        decide(snapshot, rules_with(extender(server, "filter")), "shop/new")
