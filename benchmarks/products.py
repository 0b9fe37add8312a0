"""How fast an MC-CLT fit can be: its matrix products alone, its activations alone, and the whole, against the floor.

    python benchmarks/products.py

The floor of `mcclt bench` takes the rate of a 2048² product. Those of a fit have other shapes: two networks (8 bars and
a variance, 17 inputs, width 128) forward and backward over 4,000 states, 80 times. Turn by turn in one process.

And of a pass in minibatches (2,048 states, as in `modern`), how long it takes to shuffle them.
"""

import jax
import jax.numpy as jnp
import numpy as np

from mcclt.config import AgentConfig
from mcclt.envs import make_vec
from mcclt.experiments.bench import TIMED, best_of, gemm_peak
from mcclt.method import critics
from mcclt.method.critics import Batch
from mcclt.method.learner import Learner
from mcclt.method.randomness import permutation

STATES, WIDTH, OUTPUTS, ITERATIONS, TURNS = 4_000, 128, (8, 1), 80, 6
PASS, SHUFFLES = 2_048, 100


def main() -> None:
    rng = np.random.default_rng(0)

    def draw(*shape: int) -> jax.Array:
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    env = make_vec("HalfCheetah-v5", [(0,)])
    config = AgentConfig(critic_hidden=(WIDTH, WIDTH), critic_iterations=ITERATIONS, **TIMED["mcclt"])
    learner, inputs = Learner(config, env.spec), env.spec.obs_size
    env.close()
    state, obs, numbers = learner.init(jnp.uint32(0)), draw(STATES, inputs), draw(STATES)
    bars = learner.predict(state, obs).bars
    batch = Batch(obs, numbers, numbers, numbers, numbers, bars, bars)
    batches = critics.divide(learner.critic, batch, jax.random.key(0))
    fit = jax.jit(lambda s: learner.fit(s, batches, ITERATIONS))

    x = obs.T
    layers = [(draw(WIDTH, inputs), draw(WIDTH, WIDTH), draw(outputs, WIDTH)) for outputs in OUTPUTS]

    def step(_: int, networks: list[tuple[jax.Array, ...]]) -> list[tuple[jax.Array, ...]]:
        """The products of one iteration, and as little else as keeps the compiler from leaving any out."""
        new = []
        for first, second, last in networks:
            h1 = first @ x
            h2 = second @ h1
            g3 = last @ h2
            g2 = last.T @ g3
            g1 = second.T @ g2
            new.append((first + 1e-9 * (g1 @ x.T), second + 1e-9 * (g2 @ h1.T), last + 1e-9 * (g3 @ h2.T)))
        return new

    products = jax.jit(lambda networks: jax.lax.fori_loop(0, ITERATIONS, step, networks))

    def bend(_: int, hg: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """A layer's tanh and its gradient."""
        h = jnp.tanh(1.01 * hg[0] + 0.001)
        return h, hg[1] * (1 - h * h) + 0.001

    h, bends = draw(WIDTH, STATES), 2 * len(OUTPUTS) * ITERATIONS
    activations = jax.jit(lambda h: jax.lax.fori_loop(0, bends, bend, (h, h)))
    per_state = sum(3 * (WIDTH * WIDTH + outputs * WIDTH) + 2 * inputs * WIDTH for outputs in OUTPUTS)
    flops = 2 * ITERATIONS * STATES * per_state
    for _ in range(TURNS):
        floor = flops / gemm_peak()
        whole, alone, bent = (
            best_of(f, 2) for f in (lambda: fit(state), lambda: products(layers), lambda: activations(h))
        )
        times = f"products {alone / floor:.2f} times   activations {bent / floor:.2f}   whole fit {whole / floor:.2f}"
        print(f"floor {floor:.3f} s   {times}")
    for shuffle in (permutation, jax.random.permutation):

        def add(i: int, total: jax.Array, shuffle=shuffle) -> jax.Array:
            return total + shuffle(jax.random.fold_in(jax.random.key(0), i), PASS)

        many = jax.jit(lambda start, add=add: jax.lax.fori_loop(0, SHUFFLES, add, start))
        seconds = best_of(lambda many=many: many(jnp.zeros(PASS, jnp.int32)), TURNS) / SHUFFLES
        print(f"{shuffle.__module__}.{shuffle.__name__}: {1e6 * seconds:.0f} µs")


if __name__ == "__main__":
    main()
