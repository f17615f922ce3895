"""The pages: each reads what the API reads, by the same functions."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from policy.decision.model import Outcome
from policy.rules.criteria import instant_criteria
from policy.server import cycles, views
from policy.server.api.models import DecisionsQuery
from policy.server.api.table import wanted_of
from policy.server.http import NUL, Failure, body_of, in_thread, of_store, unforeseen
from policy.server.own_sql import NEWEST, TABLES, own_sql
from policy.server.pages.observed import observed
from policy.server.pages.occupancy import WIDTH, resources
from policy.server.pages.overview import overview
from policy.server.pages.reference import operations
from policy.server.pages.rendering import page, static
from policy.server.pages.simulation import simulation
from policy.server.security.access import SESSION_SECONDS, Access, Principal
from policy.server.security.gate import allowed
from policy.server.security.tokens import Role
from policy.server.service import PolicyService
from policy.store import NotFound, StoreError
from policy.store.read.saved_queries import DEFAULTS, saved_queries, saved_query

_PAGE: Final = 50
_SQL_ROWS: Final = 500

log = logging.getLogger("policy.server")

Show = Callable[[Request, Principal], Awaitable[Response]]


def routes(service: PolicyService, access: Access) -> list[Route]:
    pages = Pages(service, access)

    def shown(path: str, show: Show, *, unlimited: bool = True) -> Route:
        return Route(path, pages.guarded(show, unlimited=unlimited), methods=["GET"])

    def changed(path: str, change: Show, role: Role) -> Route:
        return Route(path, pages.guarded(change, role=role, unlimited=True), methods=["POST"])

    return [
        Route("/static/{name}", static),
        Route("/login", pages.login, methods=["GET", "POST"]),
        Route("/logout", pages.logout, methods=["POST"]),
        shown("/", pages.overview, unlimited=False),
        shown("/decisions", pages.decisions, unlimited=False),
        shown("/decisions/{id}", pages.decision, unlimited=False),
        shown("/groups", pages.cycles, unlimited=False),
        shown("/groups/{id}", pages.cycle, unlimited=False),
        # Names that the API server does not check may have a slash in them.
        shown("/workloads/{namespace}/{name:path}", pages.workload, unlimited=False),
        shown("/nodes/{name}", pages.node),
        shown("/rules", pages.rules),
        shown("/rules/{name}", pages.rule_set),
        shown("/compare", pages.compare),
        shown("/observed", pages.observed, unlimited=False),
        shown("/environments", pages.environments),
        shown("/environments/{name:path}", pages.environment),
        changed("/environments/{name:path}/activate", pages.activate, Role.OPERATOR),
        changed("/environments/{name:path}/rollback", pages.roll_back, Role.OPERATOR),
        shown("/sql", pages.sql, unlimited=False),
        shown("/simulations", pages.simulations),
        shown("/simulations/{id}", pages.simulation),
        shown("/api", pages.api, unlimited=False),
    ]


class Pages:
    """Every page of the service."""

    def __init__(self, service: PolicyService, access: Access) -> None:
        self._service = service
        self._access = access

    def guarded(
        self, show: Show, *, role: Role = Role.VIEWER, unlimited: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        """The page for whoever may see it; a way to log in, or an error in words, for others."""

        async def endpoint(request: Request) -> Response:
            principal = self._access.principal(request)
            if principal is None:
                return RedirectResponse(f"/login?next={quote(request.url.path)}", status_code=303)
            try:
                allowed(self._access, request, role, unlimited=unlimited)
                return await show(request, principal)
            except Failure as exc:
                failure = exc
            except StoreError as exc:
                failure = of_store(exc)
            except Exception:
                # People are shown a page whatever happens.
                log.exception("a page failed")
                failure = unforeseen()
            return self._failed(request, principal, failure)

        return endpoint

    def _failed(self, request: Request, principal: Principal, failure: Failure) -> Response:
        values = {"message": failure.message, "help": failure.help, "code": failure.status}
        return page(request, self._access, principal, "error.html", status=failure.status, **values)

    # --- sessions --------------------------------------------------------------------------------

    async def login(self, request: Request) -> Response:
        """Exchange a token for a session."""
        wrong = False
        target = _local(request.query_params.get("next", "/"))
        if request.method == "POST":
            if _foreign(request):  # it would make the browser work under a token of another's
                raise Failure(403, "not-allowed", "the form is not from a page of this service")
            form = await _form(request)
            target = _local(form.get("next", "/"))
            value = self._access.session(form.get("token", ""))
            if value is not None:
                answer = RedirectResponse(target, status_code=303)
                answer.set_cookie(
                    self._access.cookie(request),
                    value,
                    max_age=SESSION_SECONDS,
                    httponly=True,
                    secure=request.url.scheme == "https",
                    samesite="strict",
                )
                return answer
            wrong = True
        status = 401 if wrong else 200
        return page(
            request, self._access, None, "login.html", status=status, wrong=wrong, target=target
        )

    async def logout(self, request: Request) -> Response:
        form = await _form(request)
        self._require_own(request, form)
        answer = RedirectResponse("/login", status_code=303)
        answer.delete_cookie(self._access.cookie(request), path="/")
        return answer

    def _require_own(self, request: Request, form: dict[str, str]) -> None:
        """Refuse a form that another site sent. Raises Failure."""
        own = self._access.is_own_form(request, form.get("form_token", ""))
        if _foreign(request) or not own:
            raise Failure(403, "not-allowed", "the form is not from a page of this session")

    # --- reading ---------------------------------------------------------------------------------

    async def overview(self, request: Request, principal: Principal) -> Response:
        figures = await in_thread(overview, self._service, principal)
        return page(request, self._access, principal, "overview.html", **figures)

    async def decisions(self, request: Request, principal: Principal) -> Response:
        given = {k: v for k, v in request.query_params.items() if v}
        try:
            query = DecisionsQuery.model_validate({**given, "limit": _PAGE})
        except ValidationError as exc:
            error = exc.errors()[0]
            field = ".".join(map(str, error["loc"]))
            raise Failure(400, "invalid", f"`{field}`: {error['msg']}") from exc
        rows, lines = await in_thread(
            views.decisions, self._service, principal, wanted_of(query), limit=_PAGE
        )
        older = None
        if len(rows) == _PAGE:
            older = "/decisions?" + urlencode({**given, "after": rows[-1].id})
        return page(
            request,
            self._access,
            principal,
            "decisions.html",
            lines=lines,
            older=older,
            outcomes=[outcome.value for outcome in Outcome],
            export="/api/v1/export/decisions?" + urlencode(given),
        )

    async def decision(self, request: Request, principal: Principal) -> Response:
        wanted = request.path_params["id"]
        stored = await in_thread(views.stored_decision, self._service, principal, wanted)
        told = views.decision(principal, stored)
        node = request.query_params.get("why_not", "").strip()
        answer = ""
        if node and not principal.limited:
            try:
                found = await in_thread(views.why_not, self._service, stored, node[:253])
                answer = found["text"]
            except Failure as exc:
                answer = exc.message
        return page(
            request,
            self._access,
            principal,
            "decision.html",
            told=told,
            node=node,
            answer=answer,
            instants=await in_thread(self._instants, stored.row.rule_set_digest),
        )

    def _instants(self, digest: str) -> frozenset[str]:
        """Criteria whose values are instants; none where the rule set is gone."""
        try:
            return instant_criteria(self._service.store.read.rule_set(digest))
        except NotFound:
            return frozenset()

    async def cycles(self, request: Request, principal: Principal) -> Response:
        rows, lines = await in_thread(
            cycles.cycles, self._service, principal, limit=_PAGE, before_id=_after(request)
        )
        return page(
            request,
            self._access,
            principal,
            "groups.html",
            lines=lines,
            older=f"/groups?after={rows[-1].id}" if len(rows) == _PAGE else "",
        )

    async def cycle(self, request: Request, principal: Principal) -> Response:
        told = await in_thread(cycles.cycle, self._service, principal, request.path_params["id"])
        return page(request, self._access, principal, "group.html", told=told)

    async def workload(self, request: Request, principal: Principal) -> Response:
        namespace, name = request.path_params["namespace"], request.path_params["name"]
        if not principal.sees(namespace):
            raise Failure(404, "not-found", "there is no such workload")
        wanted = {"victim_named": (namespace, name), "before_id": _after(request)}
        rows, lines = await in_thread(
            views.decisions, self._service, principal, wanted, limit=_PAGE
        )
        victims = await in_thread(self._service.store.read.victims_of, [r.id for r in rows])
        hit = [
            (line, victim)
            for row, line in zip(rows, lines, strict=True)
            for victim in victims.get(row.id, ())
            if victim.pod.startswith(f"{namespace}/")
            and name in (victim.owner.partition("/")[2], victim.pod.partition("/")[2])
        ]
        path = f"/workloads/{quote(namespace, safe='')}/{quote(name, safe='')}"
        return page(
            request,
            self._access,
            principal,
            "workload.html",
            title=f"{namespace}/{name}",
            hit=hit,
            newest=path if wanted["before_id"] is not None else "",
            older=f"{path}?after={rows[-1].id}" if len(rows) == _PAGE else "",
        )

    async def node(self, request: Request, principal: Principal) -> Response:
        name = request.path_params["name"]
        wanted = {"node": name}
        _, lines = await in_thread(views.decisions, self._service, principal, wanted, limit=_PAGE)
        found = []
        at_present = await in_thread(views.on_node, self._service, name)
        for cluster, (node, pods) in at_present.items():
            bars = [] if node is None else resources(node, pods)
            found.append({"cluster": cluster, "pods": pods, "bars": bars})
        return page(
            request,
            self._access,
            principal,
            "node.html",
            name=name,
            lines=lines,
            found=found,
            width=WIDTH,
        )

    async def rules(self, request: Request, principal: Principal) -> Response:
        found = await in_thread(views.rule_sets, self._service)
        return page(request, self._access, principal, "rules.html", found=found)

    async def rule_set(self, request: Request, principal: Principal) -> Response:
        found = await in_thread(views.rule_set, self._service, request.path_params["name"])
        told = views.described(found)
        judged = await in_thread(views.judged, request.path_params["name"], found)
        other = request.query_params.get("diff", "")
        changes = None
        if other:
            old = await in_thread(views.rule_set, self._service, other[:253])
            changes = views.differences(old, found)
        return page(
            request,
            self._access,
            principal,
            "rule_set.html",
            told=told,
            judged=judged,
            other=other,
            changes=changes,
        )

    async def compare(self, request: Request, principal: Principal) -> Response:
        from policy.audit.recorded import Comparing, Skipped

        rules = request.query_params.get("rules", "")
        found: list[Any] = []
        skipped = 0
        if rules:
            chosen = await in_thread(views.rule_set, self._service, rules[:253])
            rows = await in_thread(self._service.store.read.decisions, limit=200)
            ids = sorted(row.id for row in rows)
            groups, _ = await in_thread(cycles.cycles, self._service, principal, limit=200)
            numbers = [row.id for row in groups]
            judged = await in_thread(lambda: list(Comparing(chosen)(self._service.store, ids)))
            judged += await in_thread(cycles.compared, self._service, numbers, chosen)
            found = [one for one in judged if not isinstance(one, Skipped)]
            skipped = len(judged) - len(found)
        changed = [one for one in reversed(found) if one.change.value != "same"]
        names = [one["name"] for one in views.rule_sets(self._service) if one["shipped"]]
        return page(
            request,
            self._access,
            principal,
            "compare.html",
            rules=rules,
            names=names,
            total=len(found),
            skipped=skipped,
            changed=changed,
        )

    async def observed(self, request: Request, principal: Principal) -> Response:
        given = request.query_params
        verdict, rules = given.get("verdict", "")[:20], given.get("rules", "")[:253]
        found = await in_thread(observed, self._service, principal, verdict=verdict, rules=rules)
        names = [one["name"] for one in views.rule_sets(self._service) if one["shipped"]]
        return page(
            request,
            self._access,
            principal,
            "observed.html",
            names=names,
            limited=principal.limited,
            **found,
        )

    async def environments(self, request: Request, principal: Principal) -> Response:
        rows = await in_thread(self._service.store.read.environments)
        found = [views.environment(row) for row in rows]
        return page(request, self._access, principal, "environments.html", found=found)

    async def environment(
        self, request: Request, principal: Principal, *, message: str = "", status: int = 200
    ) -> Response:
        store = self._service.store
        row = await in_thread(store.read.environment, request.path_params["name"])
        activations = await in_thread(store.read.activations, row.name)
        return page(
            request,
            self._access,
            principal,
            "environment.html",
            status=status,
            told=views.environment(row),
            activations=[views.activation(one) for one in activations],
            names=[one["name"] for one in views.rule_sets(self._service) if one["shipped"]],
            message=message,
        )

    async def sql(self, request: Request, principal: Principal) -> Response:
        text = request.query_params.get("q", "")[:10_000]
        name = request.query_params.get("saved", "")
        result, error = None, ""
        parameters: dict[str, Any] = {}
        if name and not text and not principal.limited:
            saved = saved_query(name[:80])
            text = saved.sql
            parameters = {p: DEFAULTS[p] for p in saved.parameters}
        if text.strip():
            try:
                result = await in_thread(self._run, principal, text, parameters)
            except (StoreError, Failure) as exc:
                error = exc.message
        return page(
            request,
            self._access,
            principal,
            "sql.html",
            text=text,
            # Saved queries read the views of the whole record.
            saved=[] if principal.limited else list(saved_queries().values()),
            own=TABLES if principal.limited else None,
            newest=NEWEST,
            result=result,
            error=error,
            limit=_SQL_ROWS,
        )

    def _run(self, principal: Principal, text: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if principal.limited:
            return own_sql(self._service, principal, text, parameters, limit=_SQL_ROWS)
        with self._service.reader.sql(text, parameters, timeout=10) as found:
            rows = list(islice(found, _SQL_ROWS + 1))
            return {
                "columns": found.columns,
                "rows": rows[:_SQL_ROWS],
                "more": len(rows) > _SQL_ROWS,
            }

    async def simulations(self, request: Request, principal: Principal) -> Response:
        found = await in_thread(self._service.store.read.simulations)
        return page(request, self._access, principal, "simulations.html", found=found)

    async def simulation(self, request: Request, principal: Principal) -> Response:
        return await in_thread(simulation, self._service, request.path_params["id"])

    async def api(self, request: Request, principal: Principal) -> Response:
        return page(
            request,
            self._access,
            principal,
            "api.html",
            operations=operations(),
        )

    # --- changing --------------------------------------------------------------------------------

    async def activate(self, request: Request, principal: Principal) -> Response:
        def change(name: str, form: dict[str, str]) -> None:
            views.activate(
                self._service,
                principal,
                name,
                rules=form.get("rules", ""),
                reason=form.get("reason", ""),
            )

        return await self._changed(request, principal, change)

    async def roll_back(self, request: Request, principal: Principal) -> Response:
        def change(name: str, form: dict[str, str]) -> None:
            views.roll_back(self._service, principal, name, reason=form.get("reason", ""))

        return await self._changed(request, principal, change)

    async def _changed(
        self, request: Request, principal: Principal, change: Callable[[str, dict[str, str]], None]
    ) -> Response:
        form = await _form(request)
        self._require_own(request, form)
        name = request.path_params["name"]
        try:
            await in_thread(change, name, form)
        except Failure as exc:
            return await self.environment(
                request, principal, message=exc.message, status=exc.status
            )
        except StoreError as exc:
            return await self.environment(request, principal, message=exc.message, status=409)
        return RedirectResponse(f"/environments/{quote(name, safe='')}", status_code=303)


def _foreign(request: Request) -> bool:
    """Does the browser say that another site sent the form?"""
    return request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none")


def _after(request: Request) -> int | None:
    """The number that the page before ended with; None for the first page."""
    after = request.query_params.get("after", "")
    return int(after) if after.isascii() and after.isdigit() and len(after) < 19 else None


async def _form(request: Request) -> dict[str, str]:
    content = await body_of(request, limit=64 << 10)
    if b"%00" in content or b"\0" in content:
        raise Failure(400, "bad-request", f"the form holds {NUL}")
    try:
        return dict(parse_qsl(content.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as exc:
        raise Failure(400, "bad-request", "the form cannot be read") from exc


def _local(target: str) -> str:
    """A path of this service; whatever leads elsewhere becomes the first page."""
    plain = target.isprintable() and "\\" not in target
    return target if plain and target.startswith("/") and not target.startswith("//") else "/"
