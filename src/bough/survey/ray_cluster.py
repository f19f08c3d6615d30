"""The runs of a survey on a Ray cluster: each a task that asks for its cores, and perhaps a GPU.

A task whose worker or node dies is started anew by Ray, and its run goes on from its checkpoint:
the survey's directory is a folder that all nodes see.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bough.errors import UserError
from bough.extras import install_line
from bough.survey.cells import RunSpec
from bough.survey.launcher import Keep
from bough.survey.one_run import do
from bough.survey.survey_dir import SurveyDir

RETRIES = 10  # of a task whose worker died


class RayJob:
    """A run as a task of the cluster."""

    def __init__(self, ray: Any, reference: Any):
        self.ray = ray
        self.reference = reference

    def poll(self) -> int | None:
        ready, _ = self.ray.wait([self.reference], timeout=0)
        if not ready:
            return None
        try:
            return int(self.ray.get(self.reference))
        except self.ray.exceptions.RayError:  # cancelled, or its workers died again and again
            return 1

    def terminate(self) -> None:
        self.ray.cancel(self.reference)

    def kill(self) -> None:
        self.ray.cancel(self.reference, force=True)


class Cluster:
    """Starts runs on it."""

    def __init__(self, ray: Any):
        self.ray = ray
        self.task = ray.remote(work)

    def __call__(self, folder: SurveyDir, spec: RunSpec, keep: Keep) -> RayJob:
        recipe = spec.recipe
        asked = self.task.options(
            name=spec.name,
            num_cpus=recipe.threads or 1,
            num_gpus=1 if recipe.device.startswith("cuda") else 0,
            max_retries=RETRIES,
        )
        return RayJob(self.ray, asked.remote(str(folder.path.resolve()), spec.name, keep))

    def room(self, threads: int) -> int:
        """How many runs there are cores for."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)) // threads)


def work(path: str, name: str, keep: Keep) -> int:
    """What a task does, in a worker of the cluster."""
    return do(Path(path), name, keep)


@contextmanager
def connected(address: str) -> Iterator[Cluster]:
    """The cluster at this address; `local`: one of this machine alone, for the time of a survey."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise UserError(f"--ray needs its package: {install_line('cluster')}") from None
    _check_reachable(address)
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"--ray {address}: no cluster there ({why}); see: ray status") from None
    try:
        yield Cluster(ray)
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes before it says that nobody listens."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            why = error.strerror or str(error)
            raise UserError(f"--ray {address}: no cluster there ({why}); see: ray status") from None
