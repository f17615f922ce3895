"""What is larger than it may be is refused while it is read, before it takes memory."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from policy.manifests import Limits, ManifestError, read
from tests.support.tried import Kind, Tried

SMALL = Limits(object_bytes=1000, input_bytes=20_000, objects=10)


def pod(name: str, size: int = 0) -> dict[str, object]:
    annotations = {"a": "x" * size} if size else {}
    return {"kind": "Pod", "metadata": {"name": name, "annotations": annotations}}


def refused(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(ManifestError) as caught:
        read([file], limits=SMALL)
    return str(caught.value).replace(str(file), file.name).partition("\n")[0]


def a_list(*pods: dict[str, object]) -> str:
    return json.dumps({"kind": "List", "items": pods})


LARGE = "the object is larger than 1000 bytes"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", json.dumps(pod("p", 2000)), f"a.json: Pod p: {LARGE}"),
        ("a.json", a_list(pod("a", 800), pod("b", 2000)), f"a.json: Pod b: {LARGE}"),
        ("a.json", json.dumps([pod("b", 2000)]), f"a.json: Pod b: {LARGE}"),
        ("a.json", f"{json.dumps(pod('a'))}\n{json.dumps(pod('b', 2000))}",
         f"a.json: document 2: Pod b: {LARGE}"),
        ("a.yaml", f"kind: Pod\nmetadata: {{name: {'x' * 2000}}}",
         f"a.yaml: document 1: object: {LARGE}"),
        ("a.json", a_list(*[pod(f"p{i}", 800) for i in range(30)]),
         "a.json: the input is larger than 20000 bytes after decompression"),
        ("a.json", a_list(*[pod(f"p{i}") for i in range(11)]), "a.json: more than 10 objects"),
    ],
)  # fmt: skip
def test_it_is_refused(tmp_path: Path, name: str, text: str, message: str, tried: Tried) -> None:
    """The message names file, document and object, and what the limit is."""
    tried(Kind.BAD_MANIFEST)
    assert refused(tmp_path / name, text) == message


def test_a_long_list_of_small_objects_is_read(tmp_path: Path) -> None:
    """Only objects are limited, not the list around them; its kind may come after them."""
    file = tmp_path / "pods.json"
    pods = [{"metadata": {"name": f"p{i}"}, "spec": {"nodeName": "x" * 150}} for i in range(9)]
    file.write_text(json.dumps({"apiVersion": "v1", "items": pods, "kind": "PodList"}))
    assert len(read([file], limits=SMALL).objects) == 9


READ = """\
import resource, sys
from policy.manifests import ManifestError, read
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    read([sys.argv[1]])
except ManifestError as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize(
    "form", ['{"kind":"Pod","metadata":{"name":"%s"}}', "kind: Pod\nmetadata:\n  name: %s\n"]
)
def test_a_bomb_takes_little_memory(tmp_path: Path, form: str, tried: Tried) -> None:
    """A name of 200 MB, compressed to 200 kB, is refused within 100 MB of memory."""
    tried(Kind.BAD_MANIFEST)
    file = tmp_path / "bomb.gz"
    start, end = form.encode().split(b"%s")
    with gzip.open(file, "wb", compresslevel=1) as stream:
        stream.write(start)
        for _ in range(200):
            stream.write(b"x" * 1_000_000)
        stream.write(end)
    command = [sys.executable, "-c", READ, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    message, _, rest = done.stdout.partition("\n")
    assert message.endswith("the object is larger than 3 MiB")
    unit = 1 if sys.platform == "darwin" else 1024
    assert int(rest.splitlines()[-1]) * unit < 100_000_000
