"""Where units are trained: in this process, in several, or on a Ray cluster."""

import contextlib
import logging
import multiprocessing
import os
import queue
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol

from mcclt.errors import ConfigError, MccltError, MissingExtraError
from mcclt.experiments.store import Store
from mcclt.experiments.units import Outcome, Unit

ATTEMPTS = 3
"""How often a unit is tried when its worker dies."""
News = tuple[str, int, str]
"""The name of a unit, the step it has come to, and a few words."""


class Workers(Protocol):
    """Where units are trained."""

    capacity: int
    """How many units at once."""
    deaths: tuple[type[Exception], ...]
    """What a unit's future raises when its worker died; the unit may then be tried again."""

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Begins a unit."""
        ...

    def news(self) -> Iterator[News]:
        """What running units said since last asked."""
        ...

    def revive(self) -> None:
        """Replaces workers that died."""
        ...

    def close(self) -> None:
        """Ends them."""
        ...


class InProcess:
    """This process, one unit after the other."""

    capacity = 1
    deaths: tuple[type[Exception], ...] = ()

    def __init__(self, listen: Callable[[str, int, str], None]) -> None:
        self._listen = listen

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Trains it now."""
        from mcclt.experiments.training import train_unit

        future: Future[Outcome] = Future()
        try:
            future.set_result(train_unit(unit, folder, lambda step, text: self._listen(folder.name, step, text)))
        except MccltError as error:
            future.set_exception(error)
        return future

    def news(self) -> Iterator[News]:
        """Nothing: it was heard at once."""
        return iter(())

    def revive(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


class Processes:
    """Several processes on this machine, each with its own share of the cores."""

    deaths: tuple[type[Exception], ...] = (BrokenProcessPool,)

    def __init__(self, count: int) -> None:
        self.capacity = count
        self._context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
        self._manager = self._context.Manager()
        self._queue = self._manager.Queue()
        self.revive()

    def revive(self) -> None:
        """A new pool."""
        started = self._context.Value("i", 0)
        self._pool = ProcessPoolExecutor(
            self.capacity, self._context, initializer=_pin, initargs=(started, self.capacity)
        )

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Begins it in the next free process."""
        return self._pool.submit(_train_in_child, unit, folder, self._queue)

    def news(self) -> Iterator[News]:
        """From all processes."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()

    def close(self) -> None:
        """Waits for those that were interrupted to save their state."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._manager.shutdown()


def _pin(started: Any, count: int) -> None:
    """Gives this process its share of the cores, before JAX counts them."""
    with started.get_lock():
        index = started.value % count
        started.value += 1
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= count:
            os.sched_setaffinity(0, cores[index * len(cores) // count : (index + 1) * len(cores) // count])


def _train_in_child(unit: Unit, folder: Path, news: Any) -> Outcome:
    from mcclt.compilation import use_cache
    from mcclt.experiments.training import train_unit

    use_cache()
    parent = multiprocessing.parent_process()

    def report(step: int, text: str) -> None:
        if parent is not None and not parent.is_alive():
            raise SystemExit("The process that wanted this is gone.")  # its claims are free: somebody else goes on
        news.put((folder.name, step, text))

    return train_unit(unit, folder, report)


class RayCluster:
    """A Ray cluster: units are Ray tasks, retried by Ray when a worker or a node dies."""

    def __init__(self, store: Store, address: str | None, cpus: float | None, gpus: float) -> None:
        """Joins a cluster, or starts one on this machine.

        Args:
            store: where results go; nodes that see the same directory continue cut-off units from it.
            address: of a running cluster (`auto`, or host:port); None starts one here.
            cpus: cores that each unit needs; unset: 2, or all there are if fewer.
            gpus: GPUs that each unit needs.
        """
        try:
            import ray
            import ray.exceptions
            import ray.util.queue
        except ImportError:
            raise MissingExtraError("The ray engine", "ray") from None
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(f"No Ray cluster at {address!r}: {str(error).splitlines()[0]}") from None
        self._ray = ray
        raised = ray.exceptions
        self.deaths: tuple[type[Exception], ...] = (
            raised.WorkerCrashedError,
            raised.NodeDiedError,
            raised.OutOfMemoryError,
        )
        total = ray.cluster_resources()
        cpus = cpus or min(2.0, total.get("CPU", 1.0))
        if total.get("CPU", 0) < cpus or total.get("GPU", 0) < gpus:
            ray.shutdown()
            raise ConfigError(f"Each unit needs {cpus:g} cores and {gpus:g} GPUs, more than this Ray cluster has.")
        per_gpu = total.get("GPU", 0) / gpus if gpus else float("inf")
        self.capacity = max(1, int(min(total.get("CPU", 1.0) / cpus, per_gpu)))
        self._queue = ray.util.queue.Queue(actor_options={"num_cpus": 0})
        self._store = store
        self._task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=ATTEMPTS)(_train_in_cluster)

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Hands it to Ray."""
        return self._task.remote(
            unit, folder.absolute(), self._store.path.absolute(), self._store.id, self._queue
        ).future()

    def news(self) -> Iterator[News]:
        """From all nodes."""
        with contextlib.suppress(Exception):  # the queue's node may have died: progress is not worth a run
            yield from self._queue.get_nowait_batch(self._queue.qsize())

    def revive(self) -> None:
        """Ray does that."""

    def close(self) -> None:
        """Leaves the cluster; one that was started here ends."""
        self._ray.shutdown()


def _train_in_cluster(unit: Unit, folder: Path, store: Path, store_id: str, news: Any) -> Outcome:
    from mcclt.compilation import use_cache
    from mcclt.experiments.training import train_unit

    use_cache()

    def report(step: int, text: str) -> None:
        with contextlib.suppress(Exception):  # as in `news`
            news.put_nowait((folder.name, step, text))

    try:
        shared = Store(store).id == store_id
    except MccltError:
        shared = False
    with contextlib.ExitStack() as stack:
        if not shared:  # another file system: a unit that is cut off starts again
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / folder.name
        return train_unit(unit, folder, report)
