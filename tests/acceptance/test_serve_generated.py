"""Requests that a generator makes of the OpenAPI document, against the running service."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.server.security.tokens import Role, TokenFile
from tests.support import serving
from tests.support.serving import Serving, preempts

ROLES = (Role.VIEWER, Role.OPERATOR)
KNOWN = {
    "id": ["1", "2", "9", "sha256:0000", "x"],
    "name": ["prod", "kube-1.36", "kube-1.20", "nowhere"],
    "other": ["kube-1.20", "nowhere"],
    "cluster": ["default", "nowhere"],
    "kind": ["invalid", "nothing"],
    "environment": ["prod", "nowhere"],
    "rules": ["kube-1.36", "kube-1.20", "nowhere"],
    "sql": ["SELECT id FROM decisions", "SELECT :a", "DELETE FROM decisions", "x"],
    "pod": ["default/a", "x"],
}
"""Values that lead somewhere: what is made up names nothing that is there."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = TokenFile(tmp_path_factory.mktemp("tokens") / "tokens.json")
    made = {role.value: file.create(role.value, role, namespaces=None, now_ms=1) for role in Role}
    return {**made, "file": str(file._path)}


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, tokens: dict[str, str]
) -> Iterator[Serving]:
    """On a record of its own, for the requests change it."""
    folder = tmp_path_factory.mktemp("generated")
    db = str(folder / "policy.db")
    shutil.copy(sqlite_template, db)
    started = serving.serve(serving.filled(db), folder, "--tokens", tokens["file"])
    started.ready()
    headers = {"Authorization": f"Bearer {tokens['extender']}"}
    for number in (0, 4):
        call = preempts("b")[number]["request"]
        assert started.post("/extender/preempt", call, headers=headers).status_code == 200
    yield started
    log = started.log.read_text()
    assert started.stop() == 0
    assert log.partition("Traceback")[1:] == ("", "")


def described(service: Serving, token: str, *, valid: bool) -> dict[str, Any]:
    """The document, with values in it that lead somewhere.

    valid: whether headers are in it; an `ETag` that is none is no error.
    """
    headers = {"Authorization": f"Bearer {token}"}
    found: dict[str, Any] = service.get("/api/v1/openapi.json", headers=headers).json()
    # Its answer ends with the service: `test_serve_events` reads it.
    del found["paths"]["/api/v1/events"]
    for methods in found["paths"].values():
        for told in methods.values():
            if not valid:
                told["security"] = []
                told["parameters"] = [p for p in told["parameters"] if p["in"] != "header"]
            for parameter in told["parameters"]:
                if parameter["in"] == "path":
                    parameter["schema"] = {"enum": KNOWN[parameter["name"]]}
            body = told.get("requestBody", {}).get("content", {}).get("application/json", {})
            fields = body.get("schema", {}).get("properties", {})
            for name in fields.keys() & KNOWN.keys():
                fields[name] = {"enum": KNOWN[name]}
    return found


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("valid", [True, False])
def test_the_document_describes_the_service(
    service: Serving, tokens: dict[str, str], role: Role, valid: bool
) -> None:
    """Answers have the status, the type, the headers and the schema that it says; none is a 5xx.

    What the document does not allow is refused.
    """
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    mode = GenerationMode.POSITIVE if valid else GenerationMode.NEGATIVE
    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        *([] if valid else [checks.negative_data_rejection]),
    ]
    headers = {"Authorization": f"Bearer {tokens[role.value]}"}
    schema = schemathesis.openapi.from_dict(described(service, tokens[role.value], valid=valid))
    for found in schema.get_all_operations():
        operation = found.ok()
        if not valid and not (operation.query or operation.body):
            continue  # nothing can be wrong in it but the path

        @settings(
            max_examples=3 if role is Role.VIEWER else 12,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def one(case: Any) -> None:
            answer = case.call(base_url=service.url, headers=headers)
            # A body that is too large is refused before anything in it is looked at.
            unread = [checks.negative_data_rejection] if answer.status_code == 413 else []
            case.validate_response(answer, checks=[one for one in wanted if one not in unread])

        one()
