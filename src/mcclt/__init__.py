"""mcclt: distributional, uncertainty-aware PPO and TRPO for continuous control, in JAX.

Implements "Normality-Guided Distributional Reinforcement Learning for Continuous Control" (MC-CLT).
The heavy parts are imported when first used, so that `import mcclt` and `mcclt --help` are instant.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# JAX would otherwise take three quarters of a GPU's memory at once, also where several programs share it.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# On a GPU, XLA would try out dozens of Triton kernels for each matrix product of each group of a population: four
# minutes for twelve groups instead of half a minute.
if "xla_gpu_enable_triton_gemm" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_enable_triton_gemm=false".strip()

if TYPE_CHECKING:
    from mcclt.config import AgentConfig, RunConfig
    from mcclt.envs import make_vec
    from mcclt.training.model import PPO, TRPO, Model, ValueDistribution, evaluate_policy, load

__all__ = [
    "PPO",
    "TRPO",
    "AgentConfig",
    "Model",
    "RunConfig",
    "ValueDistribution",
    "evaluate_policy",
    "load",
    "make_vec",
]

_HOMES = {"AgentConfig": "mcclt.config", "RunConfig": "mcclt.config", "make_vec": "mcclt.envs"}


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'mcclt' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "mcclt.training.model")), name)
