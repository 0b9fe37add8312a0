"""Critics that learn while the next rollout is collected.

Nothing that happens between two updates asks a critic: collecting and evaluating need policies only. So the critics'
fits, most of the work of learning, are put off until they are asked for, and done meanwhile: on the host's cores or
the GPU while environments are stepped on the host, and between the steps of environments that live on the GPU.
The numbers are those of fitting at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from mcclt.method import normalisation
from mcclt.method.learner import Batches, Learner, TrainState, without_numbers
from mcclt.method.normalisation import Normaliser
from mcclt.training import population
from mcclt.training.population import Program

PRECISION = "tensorfloat32"
"""Of the fits' matrix products on a GPU, where in float32 they are 0.6 of 1.6 s: factors of 11 bits, sums in float32.

It is what JAX does there unless told otherwise. The gradient of a batch changes in its third digit; what that does to
returns was not compared seed by seed. All that acts and predicts stays in float32.
"""


@dataclass(frozen=True)
class Fit:
    """How the critics of several like groups are fitted together: in a number of pieces, then accepted or not."""

    groups: tuple[str, ...]
    pieces: int
    piece: Callable[[TrainState, Batches], TrainState]
    """One piece, for agents stacked."""
    accept: Callable[[TrainState, TrainState], TrainState] | None
    """The fitted agents, given those before; none where one piece is all, and does this too."""

    @classmethod
    def of(cls, learner: Learner, groups: tuple[str, ...], most_pieces: int) -> "Fit":
        """All iterations in at most so many pieces of equal size."""
        iterations = learner.config.critic_iterations
        pieces = max(n for n in range(1, most_pieces + 1) if iterations % n == 0)

        def piece(state: TrainState, batches: Batches) -> TrainState:
            new = learner.fit(state, batches, iterations // pieces)
            return without_numbers(learner.accept(state, new)) if pieces == 1 else new

        key = learner.key("fit")
        mapped = Program((key, pieces), piece).mapped(committed=True, precision=PRECISION)
        accept = None if pieces == 1 else Program((key, "accept"), learner.accept).mapped(committed=True)
        return cls(groups, pieces, mapped, accept)


def fits_of(learners: Mapping[str, Learner], pieces: int) -> list[Fit]:
    """How to fit the critics of all groups that leave it for later: on a GPU like ones together.

    Args:
        learners: by group.
        pieces: in how many, all groups together, at most (but at least one each).
    """
    later = {name: one for name, one in learners.items() if not one.in_turns}
    kinds = population.alike({name: Program(one.key("fit"), one.fit) for name, one in later.items()})
    return [Fit.of(learners[names[0]], names, max(1, pieces // len(kinds))) for names in kinds]


def _critics_of(state: TrainState) -> TrainState:
    """What is needed of agents while their critics are fitted."""
    return replace(state, policy=None, policy_opt=None, norm=normalisation.NONE)


@dataclass
class _Work:
    """A fit that is under way."""

    fit: Fit
    before: TrainState
    now: TrainState
    batches: Batches
    left: int


class Learnt:
    """What all groups know after an update: how to act at once, the rest when their critics are fitted."""

    def __init__(
        self, states: Mapping[str, TrainState], batches: Mapping[str, Batches] | None = None, fits: Sequence[Fit] = ()
    ) -> None:
        """Begins nothing yet.

        Args:
            states: of each group, agents stacked, as `Learner.improve` leaves them.
            batches: what their critics are to be fitted to.
            fits: how.
        """
        self._states = dict(states)
        self.under_way: list[_Work] = []
        for fit in fits:
            assert batches is not None
            pairs = [(_critics_of(states[name]), batches[name]) for name in fit.groups]
            agents, joined = population.join(pairs)
            self.under_way.append(_Work(fit, agents, agents, joined, fit.pieces))

    @property
    def policies(self) -> list[Any]:
        """Every group's policies."""
        return [state.policy for state in self._states.values()]

    @property
    def norms(self) -> list[Normaliser]:
        """Every group's statistics of observations and rewards."""
        return [state.norm for state in self._states.values()]

    def go_on(self, work: _Work | None = None) -> None:
        """Tells the device to do one more piece, of this work or of the next; does not wait for it."""
        if not self.under_way:
            return
        work = work or self.under_way[0]
        work.now = work.fit.piece(work.now, work.batches)
        work.left -= 1
        if work.left == 0:
            self.under_way.remove(work)
            fitted = work.now if work.fit.accept is None else work.fit.accept(work.before, work.now)
            for name, new in zip(work.fit.groups, population.split(fitted, len(work.fit.groups)), strict=True):
                self._states[name] = replace(
                    self._states[name], critic=new.critic, critic_opt=new.critic_opt, skipped=new.skipped
                )

    def finish(self) -> None:
        """Tells the device to do all pieces that are left; does not wait for them."""
        while self.under_way:
            self.go_on()

    def wait(self) -> None:
        """Until everything is done that the device was told to do."""
        jax.block_until_ready((self._states, [work.now for work in self.under_way]))

    @property
    def states(self) -> dict[str, TrainState]:
        """Every group, with critics fitted."""
        self.finish()
        return self._states
