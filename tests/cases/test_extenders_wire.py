"""The wire between the engine and an extender: what is an answer, and what is none."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from policy.extenders import client
from policy.extenders.client import HttpExtenders
from policy.extenders.protocol import Answer, BadAnswer, ExtenderVerb, content_of
from policy.rules.ruleset import Extender, UnmentionedNodes
from tests.support.extenders import Server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def extender(url: str, *, seconds: int = 5) -> Extender:
    return Extender(
        url_prefix=url,
        filter_verb="filter",
        prioritize_verb="prioritize",
        preempt_verb="preempt",
        weight=1,
        http_timeout_seconds=seconds,
        node_cache_capable=True,
        ignorable=False,
        managed_resources=(),
        unmentioned_nodes=UnmentionedNodes.UNRESOLVABLE,
    )


def ask(url: str, kind: ExtenderVerb = ExtenderVerb.PREEMPT, *, seconds: int = 5) -> Answer:
    return HttpExtenders().ask(kind, extender(url, seconds=seconds), b"{}")


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
    """A peer whose answer would take 100 seconds is cut off when the time is over."""
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
    assert (answer.error, took < 30) == (
        "context deadline exceeded (Client.Timeout or context cancellation while reading body)",
        True,
    )


def test_an_answer_that_never_ends_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch):
    """More bytes than any cluster needs are a failed call, not a full memory."""
    monkeypatch.setattr(client, "MAX_BYTES", 1000)
    server.verbs["preempt"] = lambda _: (200, b" " * 100_000)
    assert "the answer is larger than 1000 bytes" in ask(server.url).error


class _Counting(ThreadingHTTPServer):
    """Keeps connections open, and counts those that were made."""

    daemon_threads = True
    made = 0

    def process_request(self, request: Any, address: Any) -> None:
        self.made += 1
        super().process_request(request, address)


@pytest.fixture
def keeping() -> Iterator[_Counting]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(500 if self.path.endswith("filter") else 200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    made = _Counting(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_one_connection_serves_many_questions(keeping: _Counting):
    """It is kept between questions; after an answer that is not read, there is another one."""
    extenders, of = HttpExtenders(), extender(f"http://127.0.0.1:{keeping.server_address[1]}")
    kinds = [ExtenderVerb.PREEMPT] * 3 + [ExtenderVerb.FILTER, ExtenderVerb.PREEMPT]
    found = [extenders.ask(kind, of, b"{}").status for kind in kinds]
    assert (found, keeping.made) == ([200, 200, 200, 500, 200], 2)


def test_proxies_of_the_environment_are_not_used(
    keeping: _Counting, monkeypatch: pytest.MonkeyPatch
):
    """An extender is part of the cluster: whoever runs the engine has no say in the way to it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert ask(f"http://127.0.0.1:{keeping.server_address[1]}").error == ""


@pytest.mark.parametrize(
    ("kind", "body", "read"),
    [
        (
            ExtenderVerb.PREEMPT,
            b'{"nodenametometavictims":{"n":{"pods":[{"uid":"u"}]}}} trailing',
            ["n"],
        ),
        (ExtenderVerb.PREEMPT, b" null", []),
        (ExtenderVerb.PREEMPT, b'{"NodeNameToVictims":{"n":{}}}', []),
        (ExtenderVerb.PREEMPT, b'{"NodeNameToMetaVictims":{"n":null}}', ["n"]),
    ],
)
def test_answers_are_read_as_go_reads_them(kind: ExtenderVerb, body: bytes, read: list[str]):
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
    content = json.loads(content_of(ExtenderVerb.FILTER, body, names_only=names_only))
    assert content["NodeNames"] == names


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (ExtenderVerb.FILTER, b"", "EOF"),
        (ExtenderVerb.FILTER, b"<html>", "invalid character '<' looking for beginning of value"),
        (ExtenderVerb.FILTER, b'{"NodeNames":["a"', "unexpected EOF"),
        (ExtenderVerb.FILTER, b"[]", "cannot unmarshal array into ExtenderFilterResult"),
        (
            ExtenderVerb.FILTER,
            b'{"FailedNodes":{"a":1}}',
            "cannot unmarshal number into FailedNodes",
        ),
        (ExtenderVerb.PRIORITIZE, b'[{"Host":"a","Score":1.5}]', "cannot unmarshal number into "),
        (
            ExtenderVerb.PRIORITIZE,
            b'[{"Host":"a","Score":9223372036854775808}]',
            "cannot unmarshal number",
        ),
        (ExtenderVerb.PRIORITIZE, b'[{"Host":"a","Score":NaN}]', "invalid character 'N'"),
        (ExtenderVerb.PREEMPT, b'{"NodeNameToMetaVictims":[]}', "cannot unmarshal array into "),
        (ExtenderVerb.PREEMPT, b"[" * 100_000, "exceeded max depth"),
    ],
)
def test_what_is_no_answer_says_why(kind: ExtenderVerb, body: bytes, message: str):
    """A malformed body fails the call with the words of Go's decoder."""
    with pytest.raises(BadAnswer) as error:
        content_of(kind, body, names_only=True)
    assert str(error.value).startswith(message)
