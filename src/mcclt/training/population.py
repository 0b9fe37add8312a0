"""Functions of one agent mapped over the agents of a population: of each group, or of like groups at once."""

import functools
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mcclt import interrupts
from mcclt.errors import ConfigError
from mcclt.method import normalisation
from mcclt.method.learner import Batches, Learner, Metrics, Rollout, TrainState, without_numbers
from mcclt.method.nets import Array
from mcclt.method.policy_updates import PolicyBatch


def on_cpu() -> bool:
    """Whether agents learn on the host's cores."""
    try:
        return jax.default_backend() == "cpu"
    except (RuntimeError, AssertionError):  # JAX's own words for it differ, and one of them is an assertion
        wanted = os.environ.get("JAX_PLATFORMS")
        raise ConfigError(
            f"JAX finds no device for JAX_PLATFORMS={wanted}: unset it, and JAX takes the best available,"
            " or install JAX for that device."
        ) from None


def usual_size(gpu: bool) -> int:
    """Agents that train together, if nobody says.

    Few on a CPU, where more gain nothing, and a worker that dies loses little; many on a GPU, which they fill better.
    """
    return 360 if gpu else 8


def map_agents(function: Callable[..., Any], committed: bool = False, precision: str = "float32") -> Callable[..., Any]:
    """Maps a function of one agent over stacked agents (leading axis of every argument).

    On a GPU: `vmap`, so that hundreds of small networks fill the device, in full float32 unless said otherwise
    (conjugate gradients and the KL constraint suffer from TF32). Arguments are committed to
    the device, as environments that live there commit what is learnt from them: a program compiles anew for
    every mixture of committed and free arrays, and fresh agents would be free. On a CPU: one compiled
    program, called agent by agent (with their axis: one agent alone is neither taken nor stacked). There batched
    matrix products are slower than a loop, and the same program for any population makes an agent's numbers the
    same, bit for bit, whatever its neighbours.

    Args:
        function: of one agent.
        committed: whether arguments come from another such map or from `join`, and so need no looking at.
        precision: of matrix products on a GPU: `float32`, or `tensorfloat32` on tensor cores.
    """
    if not on_cpu():

        def precise(*args: Any) -> Any:
            with jax.default_matmul_precision(precision):
                return jax.vmap(function)(*args)

        program, gpu = jax.jit(precise), jax.devices()[0]
        return program if committed else lambda *args: program(*jax.device_put(args, gpu))

    @jax.jit
    @functools.wraps(function)
    def one(*args: Any) -> Any:
        return jax.tree.map(lambda x: jnp.expand_dims(x, 0), function(*jax.tree.map(lambda x: x.squeeze(0), args)))

    def mapped(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        agents = leaves[0].shape[0]
        if agents == 1:
            return one(*args)
        return _stack([one(*jax.tree.unflatten(tree, _take(leaves, i))) for i in range(agents)])

    return mapped


def _take(leaves: list[Array], i: int) -> list[Array]:
    """The i-th of every array, its axis kept. One program for all of JAX's: one by one, each would cost 0.2 ms."""
    ours = [x for x in leaves if isinstance(x, jax.Array)]
    taken = iter(_take_all(ours, np.int32(i)) if ours else ())
    return [next(taken) if isinstance(x, jax.Array) else x[i : i + 1] for x in leaves]


@jax.jit
def _take_all(arrays: list[jax.Array], i: jax.Array) -> list[jax.Array]:
    return [jax.lax.dynamic_slice_in_dim(x, i, 1) for x in arrays]


@jax.jit
def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack([x.squeeze(0) for x in leaves]), *trees)


# --- groups ------------------------------------------------------------------------------------------------


def join(trees: Sequence[Any]) -> Any:
    """Stacked agents of several groups as those of one."""
    if len(trees) == 1:
        return trees[0] if on_cpu() else jax.device_put(trees[0], jax.devices()[0])
    return _concatenate(list(trees))


@jax.jit
def _concatenate(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *trees)


def split(tree: Any, parts: int) -> list[Any]:
    """Stacked agents in equal parts: the other way of `join`. What is on the host is not copied."""
    if parts == 1:
        return [tree]
    on_host = isinstance(jax.tree.leaves(tree)[0], np.ndarray)
    return _divide(tree, parts, np) if on_host else _split(tree, parts)


def _divide(tree: Any, parts: int, xp: Any) -> list[Any]:
    leaves, form = jax.tree.flatten(tree)
    return [jax.tree.unflatten(form, part) for part in zip(*(xp.split(x, parts) for x in leaves), strict=True)]


@partial(jax.jit, static_argnums=1)
def _split(tree: Any, parts: int) -> list[Any]:
    return _divide(tree, parts, jnp)


@jax.jit
def choose(which: Array, new: Any, old: Any) -> Any:
    """Stacked agents: the new ones where the mask [A] is true, the old ones elsewhere."""
    return jax.tree.map(lambda a, b: jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)


def side_by_side(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    """`work` with each item, in threads: for the first time, when each compiles."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True)
class Program:
    """A function of one agent, and what it is made from: those with equal keys are the same program."""

    key: Hashable
    function: Callable[..., Any] = field(compare=False)

    def mapped(self, committed: bool = False, precision: str = "float32") -> Callable[..., Any]:
        """`map_agents` of it: one for all that ask, so that it is compiled once, whoever trains with it."""
        return _mapped(self, committed, precision, on_cpu())

    @property
    def jitted(self) -> Callable[..., Any]:
        """It for one agent, compiled once likewise."""
        return _jitted(self)


@functools.lru_cache(maxsize=256)
def _jitted(program: Program) -> Callable[..., Any]:
    return jax.jit(program.function)


@functools.lru_cache(maxsize=1024)
def _mapped(program: Program, committed: bool, precision: str, cpu: bool) -> Callable[..., Any]:
    del cpu  # tells apart what was made for the host and for a device
    return map_agents(program.function, committed, precision)


def alike(programs: Mapping[str, Program]) -> list[tuple[str, ...]]:
    """The groups that are mapped as one: on a GPU those of the same program, on a CPU each alone."""
    if on_cpu():
        return [(name,) for name in programs]
    groups: dict[Hashable, list[str]] = {}
    for name, program in programs.items():
        groups.setdefault(program.key, []).append(name)
    return [tuple(names) for names in groups.values()]


class Together:
    """A program for each group, mapped over all agents of all groups.

    On a GPU like groups are mapped as one. A loop of short programs over 30 agents takes nearly as long as one over
    180: the policy steps of the paper's twelve variants take 0.28 s instead of 0.5 s. (Where members differ in number
    or batches in size, arguments are of other shapes, and so are the keys.)
    """

    def __init__(self, programs: Mapping[str, Program]) -> None:
        """Compiles nothing yet."""
        cpu = on_cpu()
        self.groups = tuple(programs)
        self.programs = [(names, programs[names[0]].mapped(committed=not cpu)) for names in alike(programs)]
        """Names of groups, and what is mapped over them."""
        self._fresh = True

    def __call__(self, args: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """The results of each group, from the arguments of each."""

        def work(program: tuple[tuple[str, ...], Callable[..., Any]]) -> dict[str, Any]:
            interrupts.check()
            names, mapped = program
            return dict(zip(names, split(mapped(*join([args[name] for name in names])), len(names)), strict=True))

        several = side_by_side if self._fresh and len(self.programs) > 1 else map
        found = {name: result for part in several(work, self.programs) for name, result in part.items()}
        self._fresh = False
        return {name: found[name] for name in args}


def _step_of(learner: Learner) -> Callable[[TrainState, PolicyBatch], tuple[TrainState, Metrics]]:
    """`Learner.step_policy`, of which the agent's numbers do not come back: they are the same."""

    def step_policy(state: TrainState, batch: PolicyBatch) -> tuple[TrainState, Metrics]:
        new, metrics = learner.step_policy(state, batch)
        return without_numbers(new), metrics

    return step_policy


class Improve:
    """`Learner.improve` of all groups, in its two steps: more groups are alike in each than in both.

    Of a group whose policy and critic learn by turns, the whole update: nothing is left to be learnt.
    """

    def __init__(self, learners: Mapping[str, Learner]) -> None:
        """Compiles nothing yet."""
        later = {name: one for name, one in learners.items() if not one.in_turns}
        self.prepare = Together({name: Program(one.key("prepare"), one.prepare) for name, one in later.items()})
        self.step = Together({name: Program(one.key("step_policy"), _step_of(one)) for name, one in later.items()})
        self.turns = Together(
            {name: Program(one.key("take_turns"), one.take_turns) for name, one in learners.items() if one.in_turns}
        )

    def __call__(
        self, states: Mapping[str, TrainState], rollouts: Mapping[str, Rollout]
    ) -> dict[str, tuple[TrainState, Batches, Metrics]]:
        """Of each group: agents with new policies, what their critics shall learn, and metrics; agents stacked."""
        # Each step gets what it asks for and no more: groups can only be joined if their arguments are of one form.
        prepared = self.prepare(
            {
                name: (replace(states[name], policy=None, policy_opt=None), rollouts[name])
                for name in self.prepare.groups
            }
        )
        stepped = self.step(
            {
                name: (
                    replace(states[name], critic=None, critic_opt=None, norm=normalisation.NONE),
                    targets.policy_batch,
                )
                for name, targets in prepared.items()
            }
        )
        whole = self.turns({name: (states[name], rollouts[name]) for name in self.turns.groups})
        found: dict[str, tuple[TrainState, Batches, Metrics]] = {
            name: (new, (), metrics) for name, (new, metrics) in whole.items()
        }
        for name, (new, metrics) in stepped.items():
            old, targets = states[name], prepared[name]
            new = replace(targets.applied_to(new), numbers=old.numbers, critic=old.critic, critic_opt=old.critic_opt)
            found[name] = new, targets.critic_batches, metrics | targets.metrics
        return {name: found[name] for name in states}
