"""A session as the description of kube-batch reads: one node, one task, one plugin at a time.

No columns, no caches, nothing shared with the engine but the reading of objects, quantities and
selectors. Where the original would end its process, this one raises `Crash`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from policy.cluster import times
from policy.cluster.objects import ClusterObject, key_of
from tests.differential.batch_plain_model import (
    ALLOCATED,
    READY,
    Crash,
    Heap,
    Job,
    PlainNode,
    R,
    Task,
    top_share,
)
from tests.differential.batch_plain_nodes import NodeChecks


class Plain(NodeChecks):
    """One session; `run` does everything."""

    def __init__(self, objects: Sequence[ClusterObject], config: Mapping[str, Any]) -> None:
        self.actions = [a.strip() for a in config["actions"].split(",")]
        self.tiers = [list(t["plugins"]) for t in config["tiers"]]
        self.uses = [use for tier in self.tiers for use in tier]
        self.arguments: dict[str, dict[str, str]] = {}
        for use in self.uses:
            self.arguments[use["name"]] = use.get("arguments", {})
        self.binds: dict[str, str] = {}
        self.evicts: list[str] = []
        self.load(sorted(objects, key=lambda o: tuple(key_of(o).split("/", 1))))
        self.total = R()
        for node in self.nodes.values():
            self.total.add(node.allocatable)
        self.cache_idle = {name: node.idle.copy() for name, node in self.nodes.items()}
        self.has = set(self.arguments)
        self.queue_shares: dict[str, float] = {}
        self.job_has = {j.uid: self._sum(j.of(*ALLOCATED)) for j in self.jobs.values()}
        self._open_queues()

    @staticmethod
    def _sum(tasks: Sequence[Task]) -> R:
        found = R()
        for task in tasks:
            found.add(task.need)
        return found

    # --- proportion ----------------------------------------------------------------------------

    def _open_queues(self) -> None:
        names = sorted({j.queue for j in self.jobs.values()})
        self.queue_has, self.request = {}, {}
        self.deserved: dict[str, R] = {name: R() for name in names}
        for name in names:
            jobs = [j for j in self.jobs.values() if j.queue == name]
            self.queue_has[name], self.request[name] = R(), R()
            for job in jobs:
                self.queue_has[name].add(self.job_has[job.uid])
                self.queue_shares[name] = 0.0
                self.request[name].add(self.job_has[job.uid])
                self.request[name].add(self._sum(job.of("Pending")))
        if "proportion" not in self.has:
            return
        remaining, met = self.total.copy(), set()
        for _ in range(50):
            weights = sum(self.queues[n].spec.weight for n in names if n not in met)
            if weights == 0:
                return
            increase, decrease = R(), R()
            for name in [n for n in names if n not in met]:
                old = self.deserved[name].copy()
                part = self.queues[name].spec.weight / weights
                scaled = R(
                    remaining.cpu * part,
                    remaining.memory * part,
                    None
                    if remaining.scalars is None
                    else {n: v * part for n, v in remaining.scalars.items()},
                )
                new = self.deserved[name].add(scaled)
                want = self.request[name]
                if want.less(new):
                    both = new.scalars is not None and want.scalars is not None
                    scalars = (
                        {n: min(v, want.get(n)) for n, v in (new.scalars or {}).items()}
                        if both
                        else None
                    )
                    new = R(min(new.cpu, want.cpu), min(new.memory, want.memory), scalars)
                    self.deserved[name] = new
                    met.add(name)
                self.queue_shares[name] = top_share(self.queue_has[name], new)
                for n in new.names():
                    change = new.get(n) - old.get(n)
                    side = increase if change > 0 else decrease
                    if n == "cpu":
                        side.cpu += abs(change)
                    elif n == "memory":
                        side.memory += abs(change)
                    else:
                        side.add(R(scalars={n: abs(change)}))
            remaining.sub(increase).add(decrease)
            if remaining.empty():
                return
        raise Crash  # it would go on for ever

    def job_share(self, uid: str) -> float:
        return top_share(self.job_has[uid], self.total)

    def event(self, task: Task, *, takes: bool) -> None:
        for has in (self.job_has[task.job], self.queue_has[self.jobs[task.job].queue]):
            if takes:
                has.add(task.need)
            else:
                has.sub(task.need)
        queue = self.jobs[task.job].queue
        self.queue_shares[queue] = top_share(self.queue_has[queue], self.deserved[queue])

    # --- plugins combined ----------------------------------------------------------------------

    def job_less(self, left: Job, right: Job) -> bool:
        for name in self.on("enableJobOrder", "priority", "gang", "drf"):
            one, other = {
                "priority": (-left.priority, -right.priority),
                "gang": (left.ready(), right.ready()),
                "drf": (self.job_share(left.uid), self.job_share(right.uid)),
            }[name]
            if one != other:
                return one < other
        return (left.created, left.uid) < (right.created, right.uid)

    def queue_less(self, left: str, right: str) -> bool:
        if self.on("enableQueueOrder", "proportion"):
            one, other = self.queue_shares[left], self.queue_shares[right]
            if one != other:
                return one < other
        age = [
            times.parse_optional(self.queues[n].metadata.creation_timestamp) for n in (left, right)
        ]
        return (age[0], left) < (age[1], right)

    def task_less(self, left: Task, right: Task) -> bool:
        if self.on("enableTaskOrder", "priority") and left.priority != right.priority:
            return left.priority > right.priority
        return (left.created, left.uid) < (right.created, right.uid)

    def overused(self, queue: str) -> bool:
        return "proportion" in self.has and self.deserved[queue].fits(self.queue_has[queue])

    def job_ready(self, job: Job) -> bool:
        return job.ready() if self.on("enableJobReady", "gang") else True

    def job_pipelined(self, job: Job) -> bool:
        return job.pipelined() if self.on("enableJobPipelined", "gang") else True

    def victims(self, kind: str, claimant: Task, tasks: list[Task]) -> list[Task]:
        functions: dict[str, Callable[[Task, list[Task]], list[Task]]] = {
            "gang": self._spared_by_gang,
            "conformance": self._not_critical,
        }
        if kind == "preemptable":
            functions |= {"priority": self._lower_jobs, "drf": self._drf_victims}
        else:
            functions |= {"proportion": self._proportion_victims}
        flag = "enable" + kind.capitalize()
        victims: list[Task] | None = None
        for tier in self.tiers:
            for use in tier:
                if use["name"] not in functions or not use.get(flag, True):
                    continue
                answer = functions[use["name"]](claimant, tasks)
                victims = answer if victims is None else [v for v in victims if v in answer]
            if victims:
                return victims
        return victims or []

    def _lower_jobs(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        own = self.jobs[claimant.job].priority
        return [t for t in tasks if self.jobs[t.job].priority < own]

    def _spared_by_gang(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        found = []
        for task in tasks:
            job = self.jobs[task.job]
            if job.minimum <= len(job.of(*READY)) - 1 or job.minimum == 1:
                found.append(task)
        return found

    def _not_critical(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        critical = ("system-cluster-critical", "system-node-critical")
        return [
            t
            for t in tasks
            if t.pod.spec.priority_class_name not in critical
            and t.pod.metadata.namespace != "kube-system"
        ]

    def _drf_victims(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        own = top_share(self.job_has[claimant.job].copy().add(claimant.need), self.total)
        left: dict[str, R] = {}
        found = []
        for task in tasks:
            rest = left.setdefault(task.job, self.job_has[task.job].copy()).sub(task.need)
            theirs = top_share(rest, self.total)
            if own < theirs or abs(own - theirs) <= 0.000001:
                found.append(task)
        return found

    def _proportion_victims(self, claimant: Task, tasks: list[Task]) -> list[Task]:
        left: dict[str, R] = {}
        found = []
        for task in tasks:
            queue = self.jobs[task.job].queue
            rest = left.setdefault(queue, self.queue_has[queue].copy())
            if rest.less(task.need):
                continue
            rest.sub(task.need)
            if self.deserved[queue].fits(rest):
                found.append(task)
        return found

    # --- operations ----------------------------------------------------------------------------

    def allocate(self, task: Task, node: PlainNode) -> bool:
        task.status = "Allocated"
        if not node.add(task):
            return False
        self.event(task, takes=True)
        job = self.jobs[task.job]
        if self.job_ready(job):
            for one in job.of("Allocated"):
                idle = self.cache_idle.get(one.node)
                if idle is None or one.key in self.binds or not one.need.fits(idle):
                    return False
                idle.sub(one.need)
                self.binds[one.key] = one.node
                one.status = "Binding"
        return True

    def pipeline(self, task: Task, node: PlainNode, *, always: bool) -> None:
        task.status = "Pipelined"
        if node.add(task) or always:
            self.event(task, takes=True)

    def evict(self, task: Task) -> None:
        task.status = "Releasing"
        self.nodes[task.node].update(task)
        self.event(task, takes=False)

    # --- actions -------------------------------------------------------------------------------

    def run(self) -> dict[str, Any]:
        for action in self.actions:
            getattr(self, f"_{action}")()
        unready = {j.uid for j in self.jobs.values() if "gang" in self.has and not j.ready()}
        if any(not (self.jobs[u].group or self.jobs[u].shadow) for u in unready):
            raise Crash
        return self._told(unready)

    def _told(self, unready: set[str]) -> dict[str, Any]:
        groups = {}
        for uid, job in self.jobs.items():
            if job.group:
                running = len(job.of("Running"))
                enough = len(job.of(*ALLOCATED)) >= job.minimum
                phase = "Running" if enough else "Pending"
                groups[uid] = "Unknown" if running and uid in unready else phase
        tasks = [t for j in self.jobs.values() for t in j.tasks]
        return {
            "binds": self.binds,
            "evicts": self.evicts,
            "pipelined": {t.key: t.node for t in tasks if t.status == "Pipelined"},
            "allocated": {t.key: t.node for t in tasks if t.status == "Allocated"},
            "groups": groups,
            "drf": {u: self.job_share(u) for u in self.jobs} if "drf" in self.has else {},
            "queues": self.queue_shares if "proportion" in self.has else {},
        }

    def _allocate(self) -> None:
        queues, jobs, waiting = Heap(self.queue_less), {}, {}
        for job in self.jobs.values():
            queues.push(job.queue)
            jobs.setdefault(job.queue, Heap(self.job_less)).push(job)
        while queues:
            queue = queues.pop()
            if self.overused(queue) or not jobs[queue]:
                continue
            job = jobs[queue].pop()
            if job.uid not in waiting:
                waiting[job.uid] = Heap(self.task_less)
                for task in job.of("Pending"):
                    if not task.need.empty():
                        waiting[job.uid].push(task)
            tasks = waiting[job.uid]
            while tasks:
                task = tasks.pop()
                nodes = [
                    n
                    for _, n in sorted(self.nodes.items())
                    if (task.start.fits(n.idle) or task.start.fits(n.releasing))
                    and self.passes(task, n)
                ]
                if not nodes:
                    break
                scores = self.scores(task, nodes)
                best = next(n for n in nodes if scores[n.name] == max(scores.values()))
                if task.start.fits(best.idle):
                    self.allocate(task, best)
                else:
                    self.pipeline(task, best, always=False)
                if self.job_ready(job) and tasks:
                    jobs[queue].push(job)
                    break
            queues.push(queue)

    def _backfill(self) -> None:
        for job in self.jobs.values():
            for task in job.of("Pending"):
                if task.start.empty():
                    for _, node in sorted(self.nodes.items()):
                        if self.passes(task, node) and self.allocate(task, node):
                            break

    def _preempt(self) -> None:
        waiting = [j for j in self.jobs.values() if j.of("Pending")]
        jobs: dict[str, Heap] = {}
        tasks: dict[str, Heap] = {}
        for job in waiting:
            jobs.setdefault(job.queue, Heap(self.job_less)).push(job)
            tasks[job.uid] = Heap(self.task_less)
            for task in job.of("Pending"):
                tasks[job.uid].push(task)
        for queue in sorted({j.queue for j in self.jobs.values()}):
            while jobs.get(queue):
                job = jobs[queue].pop()
                done: list[tuple[str, Task]] = []
                assigned = committed = False
                while tasks[job.uid]:
                    assigned |= self._try(tasks[job.uid].pop(), done, inside=False)
                    if self.job_pipelined(job):
                        self._commit(done)
                        committed = True
                        break
                if not committed and not self.job_pipelined(job):
                    self._discard(done)
                elif assigned:
                    jobs[queue].push(job)
            for job in waiting:
                while tasks[job.uid]:
                    done = []
                    found = self._try(tasks[job.uid].pop(), done, inside=True)
                    self._commit(done)
                    if not found:
                        break

    def _commit(self, done: list[tuple[str, Task]]) -> None:
        self.evicts += [task.key for what, task in done if what == "evict"]

    def _discard(self, done: list[tuple[str, Task]]) -> None:
        for what, task in reversed(done):
            if what == "evict":
                task.status = "Running"
                self.nodes[task.node].update(task)
            else:
                task.status = "Pending"
                self.nodes[task.node].remove(task)
            self.event(task, takes=what == "evict")

    def _try(self, task: Task, done: list[tuple[str, Task]], *, inside: bool) -> bool:
        job = self.jobs[task.job]
        nodes = [n for n in self.nodes.values() if self.passes(task, n)]
        scores = self.scores(task, sorted(nodes, key=lambda n: n.name))
        for node in sorted(nodes, key=lambda n: (scores[n.name], n.name), reverse=True):
            asked = [
                held
                for held, status in node.tasks()
                if status == "Running"
                and held.job in self.jobs
                and (
                    held.job == job.uid
                    if inside
                    else held.job != job.uid and self.jobs[held.job].queue == job.queue
                )
            ]
            victims = self.victims("preemptable", task, asked)
            if not victims or not task.start.fits(self._sum(victims)):
                continue
            order = Heap(lambda left, right: not self.task_less(left, right))
            for victim in victims:
                order.push(victim)
            freed = R()
            while order:
                victim = order.pop()
                self.evict(victim)
                done.append(("evict", victim))
                freed.add(victim.need)
                if task.start.fits(freed):
                    break
            self.pipeline(task, node, always=True)
            done.append(("pipeline", task))
            return True
        return False

    def _reclaim(self) -> None:
        queues = Heap(self.queue_less)
        jobs: dict[str, Heap] = {}
        tasks: dict[str, Heap] = {}
        seen = set()
        for job in self.jobs.values():
            if job.queue not in seen:
                seen.add(job.queue)
                queues.push(job.queue)
            if job.of("Pending"):
                jobs.setdefault(job.queue, Heap(self.job_less)).push(job)
                tasks[job.uid] = Heap(self.task_less)
                for task in job.of("Pending"):
                    tasks[job.uid].push(task)
        while queues:
            queue = queues.pop()
            if self.overused(queue) or not jobs.get(queue):
                continue
            if self._reclaim_for(queue, tasks[jobs[queue].pop().uid].pop()):
                queues.push(queue)

    def _reclaim_for(self, queue: str, task: Task) -> bool:
        for _, node in sorted(self.nodes.items()):
            if not self.passes(task, node):
                continue
            asked = [
                held
                for held, status in node.tasks()
                if status == "Running"
                and held.job in self.jobs
                and self.jobs[held.job].queue != queue
            ]
            victims = self.victims("reclaimable", task, asked)
            if not victims or not task.start.fits(self._sum(victims)):
                continue
            freed = R()
            for victim in victims:
                self.evict(victim)
                self.evicts.append(victim.key)
                freed.add(victim.need)
                if task.start.fits(freed):
                    break
            self.pipeline(task, node, always=False)
            return True
        return False
