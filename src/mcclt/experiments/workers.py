"""Where units are trained: in this process, in several, or on a Ray cluster."""

import abc
import contextlib
import logging
import multiprocessing
import os
import queue
import re
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any

from mcclt import interrupts
from mcclt.errors import ConfigError, MccltError, MissingExtraError
from mcclt.experiments.store import Store
from mcclt.experiments.units import Outcome, Unit

ATTEMPTS = 3
"""How often a unit is tried when its worker dies."""
News = tuple[str, int, str]
"""The name of a unit, the step it has come to, and a few words."""


class Workers(abc.ABC):
    """Where units are trained."""

    capacity: int = 1
    """How many units at once."""
    apart: bool = True
    """Whether each has cores or a GPU of its own, so that a unit cut into parts is trained sooner."""
    deaths: tuple[type[Exception], ...] = ()
    """What a unit's future raises when its worker died; the unit may then be tried again."""

    @abc.abstractmethod
    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Begins a unit."""

    def news(self) -> Iterable[News]:
        """What running units said since last asked."""
        return ()

    def close(self) -> None:  # noqa: B027 (some have nothing to end)
        """Ends them."""


class InProcess(Workers):
    """This process, one unit after the other; whoever listens hears its news at once."""

    def __init__(self, listen: Callable[[str, int, str], None]) -> None:
        self._listen = listen

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Trains it now."""
        from mcclt.experiments.training import train_unit

        future: Future[Outcome] = Future()
        try:
            future.set_result(train_unit(unit, folder, lambda step, text: self._listen(folder.name, step, text)))
        except Exception as error:
            future.set_exception(error)
        return future


class Crew(Workers):
    """Workers beside this process, which can be given any work and reach an object in common."""

    @abc.abstractmethod
    def call(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Calls a function in a free worker."""

    @abc.abstractmethod
    def host(self, make: Callable[..., Any], *args: Any) -> Any:
        """Makes an object and keeps it: what is returned may go along with a call, and passes on what is asked of it.

        Several may ask at once.
        """


class Processes(Crew):
    """Several processes on this machine, each alone in its pool: one that dies takes no other with it."""

    deaths = (BrokenProcessPool,)

    def __init__(self, count: int, pin: bool) -> None:
        """Starts none yet.

        To `pin` gives each its own share of the cores, so that they do not get in each other's way. Where a GPU learns,
        cores only step environments, and are better shared.
        """
        self.capacity, self.apart = count, pin
        self._context = multiprocessing.get_context("spawn")  # JAX does not survive a fork
        self.manager = _Manager(ctx=self._context)
        self.manager.start(_follow_parent)
        self._queue, self._stop = self.manager.Queue(), self.manager.Event()
        self._pools = [self._pool(place) for place in range(count)]
        self._futures: dict[int, Future[Any]] = {}

    def _pool(self, place: int) -> ProcessPoolExecutor:
        count = self.capacity if self.apart else 1
        return ProcessPoolExecutor(1, self._context, _prepare, (place % count, count))

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Begins it in a free process."""
        return self.call(_train_in_child, unit, folder, self._queue, self._stop)

    def call(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """Calls a function in a free process, a new one if that has died."""
        place = next(i for i in range(self.capacity) if i not in self._futures or self._futures[i].done())
        try:
            self._futures[place] = self._pools[place].submit(function, *args)
        except BrokenProcessPool:
            self._pools[place] = self._pool(place)
            self._futures[place] = self._pools[place].submit(function, *args)
        return self._futures[place]

    def host(self, make: Callable[..., Any], *args: Any) -> Any:
        """In the manager's process."""
        return self.manager.host(make, *args)

    def news(self) -> Iterator[News]:
        """From all processes."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._queue.get_nowait()

    def close(self) -> None:
        """Has those at work save their state after this update, and waits for them."""
        # Ctrl-C may have cut short a question to the manager, and the next one that this thread asks would get its
        # answer. Another thread has a connection of its own.
        thread = threading.Thread(target=self._stop.set)
        thread.start()
        thread.join()
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)
        self.manager.shutdown()


class _Manager(SyncManager):
    """Keeps objects that all processes reach."""

    host: Callable[..., Any]


def _make(make: Callable[..., Any], *args: Any) -> Any:
    return make(*args)


_Manager.register("host", _make)


def _follow_parent() -> None:
    """Ends this process with its parent, and leaves signals, which schedulers send to all processes, to that."""
    interrupts.end_with_parent()
    for number in interrupts.SIGNALS:  # while it trains, `interrupts` hears them
        signal.signal(number, signal.SIG_IGN)


def _prepare(place: int, count: int) -> None:
    """Gives this process its share of the cores, before JAX counts them."""
    _follow_parent()
    if count > 1 and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) >= count:
            os.sched_setaffinity(0, cores[place * len(cores) // count : (place + 1) * len(cores) // count])


def _train_in_child(unit: Unit, folder: Path, news: Any, stop: Any) -> Outcome:
    def report(step: int, text: str) -> None:
        news.put((folder.name, step, text))
        if stop.is_set():
            raise KeyboardInterrupt

    return _train(unit, folder, report)


def _train(unit: Unit, folder: Path, report: Callable[[int, str], None]) -> Outcome:
    from mcclt.experiments.training import train_unit

    with in_a_worker():
        return train_unit(unit, folder, report)


@contextlib.contextmanager
def in_a_worker() -> Iterator[None]:
    """Training in a process of its own, with the user's own classes."""
    from mcclt.training import plugins
    from mcclt.training.compilation import use_cache

    use_cache()
    try:
        plugins.import_named()
        yield
    except MccltError as error:
        raise MccltError(str(error)) from None  # some of our errors cannot be sent to another process


class RayCluster(Crew):
    """A Ray cluster: units are Ray tasks."""

    def __init__(self, store: Store | None, address: str | None, cpus: float | None, gpus: float) -> None:
        """Joins a cluster, or starts one on this machine.

        Args:
            store: where results of units go; nodes that see the same directory continue cut-off units from it.
            address: of a running cluster (`auto`, or host:port); None starts one here.
            cpus: cores that each unit needs; unset: 2, or all there are if fewer.
            gpus: GPUs that each unit needs.
        """
        try:
            import ray
            import ray.exceptions
            import ray.util.queue
            import ray.util.scheduling_strategies
        except ImportError:
            raise MissingExtraError("--backend ray", "ray") from None
        _check_address(address)
        try:
            ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(f"No Ray cluster at {address!r}: {str(error).splitlines()[0]}") from None
        self._ray, raised = ray, ray.exceptions
        # The last: it had ended, but its node died before we had its results.
        self.deaths = (raised.WorkerCrashedError, raised.NodeDiedError, raised.OutOfMemoryError, raised.ObjectLostError)
        total = ray.cluster_resources()
        cpus = cpus or min(2.0, total.get("CPU", 1.0))
        if total.get("CPU", 0) < cpus or total.get("GPU", 0) < gpus:
            ray.shutdown()
            raise ConfigError(f"Each unit needs {cpus:g} cores and {gpus:g} GPUs, more than this Ray cluster has.")
        per_gpu = total.get("GPU", 0) / gpus if gpus else float("inf")
        self.capacity = max(1, int(min(total.get("CPU", 1.0) / cpus, per_gpu)))
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )  # so that progress is seen whichever other node dies
        self._here: dict[str, Any] = {"num_cpus": 0, "scheduling_strategy": here}
        self._queue = ray.util.queue.Queue(actor_options=self._here)
        self._store = store
        self._remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)

    def submit(self, unit: Unit, folder: Path) -> Future[Outcome]:
        """Hands it to Ray."""
        assert self._store is not None
        store = self._store.path.absolute()
        return self.call(_train_in_cluster, unit, folder.absolute(), store, self._store.id, self._queue)

    def call(self, function: Callable[..., Any], *args: Any) -> Future[Any]:
        """As a task of Ray's."""
        return self._remote(function).remote(*args).future()

    def host(self, make: Callable[..., Any], *args: Any) -> Any:
        """In an actor of Ray's beside this process."""
        return _Actor(self._ray.remote(**self._here)(make).remote(*args))

    def news(self) -> Iterator[News]:
        """From all nodes."""
        with contextlib.suppress(Exception):  # the queue's node may have died: progress is not worth a run
            yield from self._queue.get_nowait_batch(self._queue.qsize())

    def close(self) -> None:
        """Leaves the cluster; one that was started here ends."""
        self._ray.shutdown()


class _Actor:
    """Asks an actor of Ray's, and waits for its answer."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        import ray

        return lambda *args: ray.get(getattr(self._actor, name).remote(*args))


def _check_address(address: str | None) -> None:
    """Knocks at host:port, or ray://host:port, because Ray tries for minutes."""
    if address is not None and (parts := re.fullmatch(r"(?:ray://)?(.+):([0-9]+)", address)):
        try:
            socket.create_connection((parts[1], int(parts[2])), timeout=5).close()
        except (OSError, OverflowError) as error:
            raise ConfigError(f"No Ray cluster at {address!r}: {getattr(error, 'strerror', None) or error}.") from None


def _train_in_cluster(unit: Unit, folder: Path, store: Path, store_id: str, news: Any) -> Outcome:
    def report(step: int, text: str) -> None:
        with contextlib.suppress(Exception):  # as in `news`
            news.put_nowait((folder.name, step, text))

    try:
        shared = Store(store).id == store_id
    except MccltError:
        shared = False
    with tempfile.TemporaryDirectory() as own:  # on another file system a unit that is cut off starts again
        return _train(unit, folder if shared else Path(own) / folder.name, report)
