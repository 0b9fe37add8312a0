"""Discrete actions: CartPole, where an action is one of two pushes.

Nothing changes but the task: the policy becomes a categorical distribution over the actions, `predict` gives whole
numbers, and every critic, weighting and policy update works as with vectors.

    python examples/discrete_actions.py
    python examples/discrete_actions.py --task LunarLander-v3 --steps 500000      (pip install '.[box2d]')
"""

import gymnasium as gym
import tyro

from mcclt import TRPO, evaluate_policy


def main(task: str = "CartPole-v1", steps: int = 32_000, seed: int = 0) -> TRPO:
    """Trains on a task with discrete actions and plays one episode.

    Args:
        task: any task with a Discrete action space.
        steps: environment steps.
        seed: of the agent and its environments.

    Returns:
        The trained model.
    """
    model = TRPO(task, seed=seed, steps_per_update=1_600, critic_iterations=40)
    before, _ = evaluate_policy(model, n_eval_episodes=20)
    model.learn(steps)
    after, _ = evaluate_policy(model, n_eval_episodes=20)
    print(f"Mean return of 20 episodes: {before:.1f} before, {after:.1f} after {model.num_timesteps:,} steps.")

    env = gym.make(task)
    obs, _ = env.reset(seed=seed)
    taken, done = [], False
    while not done:
        action, _ = model.predict(obs, deterministic=True)
        taken.append(int(action))
        obs, _, terminated, truncated, _ = env.step(taken[-1])
        done = terminated or truncated
    env.close()
    belief = model.value_distribution(obs)
    print(f"One episode of {len(taken)} actions begins with {taken[:12]} …")
    print(f"Its last state is worth {belief.mean:.1f} ± {belief.std:.1f}, says the critic; weight {belief.weight:.2f}.")
    return model


if __name__ == "__main__":
    tyro.cli(main)
