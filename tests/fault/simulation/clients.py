"""What users ask for at random times, of whichever master, and whether it was granted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.cluster.alarms import JOB_FAILED, alarm_id
from penstock.cluster.client_requests import NotLeaderError, RequestError
from penstock.cluster.job_documents import JobSpec
from penstock.coord.coordination_store import DisconnectedError
from penstock.job_settings import Resources
from penstock.master.cluster_service import ClusterService
from simulation.actors import CrashedError
from simulation.worker import FAULTY, POISON
from simulation.world import InvariantError
from support.settings import make_submission

if TYPE_CHECKING:
    from simulation.cluster import Cluster

JOBS = ("j1", "j2", "j3")
_TRIES = 6
_EVERY = 7.0

Ask = Callable[[ClusterService], Any]
Granted = Callable[[JobSpec], bool]


class Clients:
    """Asks, follows the leader, and holds the cluster to what it has granted."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._bundles = 0
        self._wishes: tuple[Callable[[str], None], ...] = (
            self._submit,
            self._update,
            self._update,
            self._migrate,
            self._migrate,
            self._scale,
            self._replicate,
            self._replicate,
            self._kill,
            self._resubmit,
            self._clear,
        )
        if cluster.scarce:
            self._wishes += (self._migrate, self._scale, self._rebalance)
        self.granted = 0
        self.refused = 0
        for job in JOBS:
            self._world.after(self._world.random.uniform(1, 15), partial(self._submit, job))
        self._world.after(10.0, self._ask_something)

    def _ask_something(self) -> None:
        if not self._world.faulty:
            return
        random = self._world.random
        self._world.after(random.expovariate(1 / _EVERY), self._ask_something)
        job = random.choice(JOBS)
        random.choice(self._wishes)(job)

    def _submit(self, job: str) -> None:
        random = self._world.random
        location = random.choice(("shared", "shared", "node"))
        k, warm = self._replicas() if location == "shared" else (0, False)
        submission = make_submission(
            f"{job}.py",
            {"name": job, "vertices": [], "edges": []},
            resources=self._resources(),
            nodes=self._nodes(),
            until=random.choice((None, None, None, "drained")),
            fresh=random.random() < 0.3,
            data_location=location,
            k=k,
            warm_standby=warm,
        )
        bundle = self._bundle()
        self._ask(
            f"submit {job}",
            job,
            lambda service: service.submit(submission, bundle),
            lambda spec: spec.bundle == bundle and (spec.fresh or not submission.fresh),
        )

    def _update(self, job: str) -> None:
        submission = make_submission(f"{job}.py", {"name": job, "vertices": [], "edges": []})
        bundle = self._bundle()
        self._ask(
            f"update {job}",
            job,
            lambda service: service.update(job, submission, bundle),
            lambda spec: spec.bundle == bundle,
        )

    def _migrate(self, job: str) -> None:
        node = self._world.random.choice(sorted(self._cluster.machines))
        self._ask(
            f"migrate {job} to {node}",
            job,
            lambda service: service.migrate(job, node),
            lambda spec: spec.driver == node,
        )

    def _scale(self, job: str) -> None:
        wanted = self._resources()
        changes = {"cores": wanted.cores, "executors": wanted.executors}
        nodes = self._nodes() or None
        self._ask(
            f"scale {job} to {changes} on {nodes}",
            job,
            lambda service: service.scale(job, changes, nodes),
            lambda spec: spec.settings.resources == wanted and nodes in (None, spec.settings.placement.nodes),
        )

    def _replicate(self, job: str) -> None:
        k, warm = self._replicas()
        self._ask(
            f"replicate {job}: k={k} {warm}",
            job,
            lambda service: service.replicate(job, {"k": k, "warm_standby": warm}),
            lambda spec: (spec.settings.replicas.k, spec.settings.replicas.warm_standby) == (k, warm),
        )

    def _rebalance(self, _: str) -> None:
        """Have whoever leads even out the load. Which jobs that moves, if any, nobody knows beforehand."""
        for master in self._cluster.masters():
            if master.answers and master.service is not None and master.service.is_leader():
                with suppress(RequestError, DisconnectedError, CrashedError):
                    moves = master.service.rebalance(dry_run=False)["moves"]
                    self._world.tell("client", f"rebalance: {moves}")

    def _kill(self, job: str) -> None:
        drain = self._world.random.random() < 0.5
        self._ask(
            f"kill {job}{' --drain' if drain else ''}",
            job,
            lambda service: service.kill(job, drain),
            lambda spec: spec.wanted == "ended" and spec.drain == drain,
        )

    def _resubmit(self, job: str) -> None:
        fresh = self._world.random.random() < 0.3
        self._ask(
            f"resubmit {job}{' --fresh' if fresh else ''}",
            job,
            lambda service: service.resubmit(job, fresh),
            lambda spec: spec.wanted == "running" and (spec.fresh or not fresh),
        )

    def _clear(self, job: str) -> None:
        alarm = alarm_id(JOB_FAILED, job)
        self._ask(
            f"clear {alarm}",
            job,
            lambda service: service.clear(alarm),
            lambda spec: spec.wanted == "running",
        )

    def _ask(
        self, what: str, job: str, ask: Ask, granted: Granted, tries: int = _TRIES, whom: str = ""
    ) -> None:
        """Ask a master, the one that leads if another says so, and note what comes of it."""
        world = self._world
        masters = [master for master in self._cluster.masters() if master.answers]
        asked = next((master for master in masters if master.name == whom), None)
        if asked is None and masters:
            asked = world.random.choice(masters)
        if asked is None or asked.service is None:
            self._later(what, job, ask, granted, tries, "")
            return
        before = len(self._cluster.witness.specs.get(job, ()))
        try:
            ask(asked.service)
        except NotLeaderError as error:
            self._later(what, job, ask, granted, tries, error.url)
        except RequestError as error:
            self.refused += 1
            world.tell("client", f"{what}: refused, {error}")
        except (DisconnectedError, CrashedError):
            world.tell("client", f"{what}: nobody knows")
        else:
            self.granted += 1
            world.tell("client", f"{what}: granted by {asked.name}")
            written = self._cluster.witness.specs.get(job, [])[before:]
            if not any(granted(spec) for spec in written):
                raise InvariantError(f"{what} was granted, and nothing was written: {written}")

    def _later(self, what: str, job: str, ask: Ask, granted: Granted, tries: int, whom: str) -> None:
        if tries:
            self._world.after(
                self._world.random.uniform(0.1, 2.0),
                lambda: self._ask(what, job, ask, granted, tries - 1, whom),
            )

    def _resources(self) -> Resources:
        random = self._world.random
        return Resources(cores=random.choice((1, 2)), executors=random.choice((0, 0, 1, 2)))

    def _replicas(self) -> tuple[int, bool]:
        return self._world.random.choice(((0, False), (1, False), (1, False), (2, False), (0, True)))

    def _nodes(self) -> tuple[str, ...]:
        random = self._world.random
        names = sorted(self._cluster.machines)
        return tuple(sorted(random.sample(names, 2))) if random.random() < 0.25 else ()

    def _bundle(self) -> str:
        self._bundles += 1
        kind = self._world.random.choices((POISON, FAULTY, "good"), (1, 1, 6))[0]
        return f"{kind}-{self._bundles}"
