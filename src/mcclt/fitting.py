"""Critics that learn while the next rollout is collected.

Nothing that happens between two updates asks a critic: collecting and evaluating need policies only. So the critics'
fits, most of the work of learning, are put off until they are asked for, and done meanwhile: on the host's cores or
the GPU while environments are stepped on the host, and between the steps of environments that live on the GPU.
The numbers are those of fitting at once.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcclt.learner import AgentState, Learner, Lesson, map_agents
from mcclt.normalisation import Normaliser


@dataclass(frozen=True)
class Fit:
    """How the critics of one group's agents are fitted: a number of pieces, and then a last look."""

    pieces: int
    piece: Callable[[AgentState, Lesson], AgentState]
    """One piece, for agents stacked."""
    accept: Callable[[AgentState, AgentState], AgentState]
    """The fitted agents, given those before."""

    @classmethod
    def of(cls, learner: Learner, most_pieces: int) -> "Fit":
        """All iterations in at most so many pieces of equal size."""
        iterations = learner.config.critic_iterations
        pieces = max(n for n in range(1, most_pieces + 1) if iterations % n == 0)

        def piece(state: AgentState, lesson: Lesson) -> AgentState:
            return learner.fit(state, lesson, iterations // pieces)

        return cls(pieces, map_agents(piece, committed=True), map_agents(learner.accept, committed=True))


class Learnt:
    """What all groups know after an update: how to act at once, the rest when their critics are fitted."""

    def __init__(self, states: dict[str, AgentState], lessons: dict[str, Lesson], fits: dict[str, Fit]) -> None:
        """Begins nothing yet.

        Args:
            states: of each group, agents stacked, as `Learner.improve` leaves them.
            lessons: of the groups whose critics are to be fitted.
            fits: how, by group.
        """
        self._states, self._before = dict(states), dict(states)
        self._lessons, self._fits = dict(lessons), fits
        self._left = {name: fits[name].pieces for name in lessons}

    @property
    def policies(self) -> list[Any]:
        """Every group's policies."""
        return [state.policy for state in self._states.values()]

    @property
    def norms(self) -> list[Normaliser]:
        """Every group's statistics of observations and rewards."""
        return [state.norm for state in self._states.values()]

    def go_on(self, name: str | None = None) -> None:
        """Tells the device to do one more piece, of the named group or of the next one; does not wait for it."""
        if not self._left:
            return
        if name is None:
            name = next(iter(self._left))
        fit = self._fits[name]
        self._states[name] = fit.piece(self._states[name], self._lessons[name])
        self._left[name] -= 1
        if self._left[name] == 0:
            self._states[name] = fit.accept(self._before.pop(name), self._states[name])
            del self._left[name], self._lessons[name]

    def finish(self) -> None:
        """Tells the device to do all pieces that are left; does not wait for them."""
        while self._left:
            self.go_on()

    @property
    def states(self) -> dict[str, AgentState]:
        """Every group, with critics fitted."""
        self.finish()
        return self._states
