"""Types that are decoded are looked up by one thread at a time."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable

import msgspec
import pytest

from policy.cluster.objects import KINDS
from policy.typed import NOT_UTF8, UNDECODABLE, prepared, undecodable
from tests.cases.test_rooms import modules

TYPED = {
    "msgspec.json.Decoder": 0,
    "msgspec.convert": 1,
    "msgspec.json.decode": "type",
    "msgspec.msgpack.decode": "type",
}
"""What looks up a type, and where its calls name it."""

BUILT_IN = {"msgspec.Raw", "list[dict[str, Any]]", "dict[str, int]"}
"""Types in which nothing has to be looked up."""

MANY_THREADS = """
import sys, threading
import msgspec
from policy.cluster.objects import KINDS
from policy.typed import prepared

sys.setswitchinterval(1e-6)
together = threading.Barrier(4)
ONE = b'{"metadata": {"name": "a"}, "value": 1, "provisioner": "p", "spec": {}, "driver": "d"}'
found = []

def decode():
    together.wait()
    for kind in KINDS.values():
        found.append(msgspec.json.Decoder(prepared(kind)).decode(ONE))

threads = [threading.Thread(target=decode) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(found))
"""


def typed_calls() -> list[tuple[str, str]]:
    """Where a type is looked up, and the type."""
    found = []
    for name, file in modules():
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.Call) or name == "policy.typed":
                continue
            match TYPED.get(ast.unparse(node.func)):
                case int(position) if len(node.args) > position:
                    found.append((f"{name}:{node.lineno}", ast.unparse(node.args[position])))
                case str(keyword):
                    kinds = [k.value for k in node.keywords if k.arg == keyword]
                    found.extend((f"{name}:{node.lineno}", ast.unparse(kind)) for kind in kinds)
    return found


def test_every_type_is_prepared() -> None:
    calls = typed_calls()
    assert len(calls) > 40
    assert [
        (where, kind)
        for where, kind in calls
        if kind not in BUILT_IN and not kind.startswith("prepared(")
    ] == []


def test_threads_decode_their_first_objects_at_once() -> None:
    """Without `prepared`, msgspec ends this process with a segmentation fault nearly every time."""
    command = [sys.executable, "-c", MANY_THREADS]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{4 * len(KINDS)}\n", "")


@pytest.mark.parametrize("kind", [int, list[int], int | None])
def test_a_type_is_given_back(kind: object) -> None:
    assert prepared(kind) is kind


@pytest.mark.parametrize(
    ("decode", "data", "said"),
    [
        (msgspec.json.decode, b'["\xff"]', NOT_UTF8),
        (msgspec.json.decode, b'{"\xff": 1}', NOT_UTF8),
        (msgspec.msgpack.decode, b"\xa1\xff", NOT_UTF8),
        (msgspec.json.decode, b'["', "Input data was truncated"),
        (msgspec.msgpack.decode, b"\xa1", "Input data was truncated"),
    ],
)
def test_what_is_wrong_with_bytes_is_said_alike(
    decode: Callable[[bytes], object], data: bytes, said: str
) -> None:
    """By every version of msgspec: up to 0.22 a text that is not UTF-8 is another error."""
    with pytest.raises(UNDECODABLE) as failed:
        decode(data)
    assert undecodable(failed.value) == said
