"""An environment that kills its process:  trouble:Killer-v0  (`probes` has those that raise)."""

import os
import signal

import gymnasium as gym
import numpy as np

from probes import Noisy


class Killer(Noisy):
    """Ends the process that steps it, as the system does when memory is short."""

    def step(self, action: np.ndarray):
        os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


gym.register("Killer-v0", Killer)
