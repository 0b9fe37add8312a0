"""Weights and the search for their temperature, against closed forms and a plain Python search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from scipy.special import expit

from mcclt.config import AgentConfig
from mcclt.envs.api import EnvSpec
from mcclt.errors import ConfigError
from mcclt.method.learner import Learner
from mcclt.method.weighting import AccuracySeeking, ExplorationSeeking, InverseVariance, Temperature, Uniform, shares

SPEC = EnvSpec("Made-Up", "none", 3, 2, -np.ones(2), np.ones(2), None, False)
W_TAR, W_MIN = 0.9, 0.6
SIZE = 64
LOG = AccuracySeeking(AgentConfig(w_tar=W_TAR, w_min=W_MIN, temperature="log"))
PAPER = AccuracySeeking(AgentConfig(w_tar=W_TAR, w_min=W_MIN, temperature="paper"))
EXPLORE = ExplorationSeeking(AgentConfig(w_tar=W_TAR, w_min=W_MIN, temperature="log"))
EXPLORE_PAPER = ExplorationSeeking(AgentConfig(w_tar=W_TAR, w_min=W_MIN, temperature="paper"))


def compiled(weighting):
    def both(error):
        temperature = weighting.search(error)
        return temperature, weighting.weights(error, temperature)

    program = jax.jit(both)
    return lambda error: jax.tree.map(np.asarray, program(jnp.asarray(error, jnp.float32)))


RUN = {id(w): compiled(w) for w in (LOG, PAPER, EXPLORE, EXPLORE_PAPER)}


def run(weighting, error) -> tuple[Temperature, np.ndarray]:
    assert len(error) == SIZE  # one compilation each
    return RUN[id(weighting)](error)


def accuracy(error, t):
    """The paper's formula in float64."""
    return 2 * (1 - W_MIN) * expit(-np.asarray(error, np.float64) * float(t)) + W_MIN


def errors(seed=0):
    return np.random.default_rng(seed).exponential(size=SIZE)


# --- accuracy-seeking ------------------------------------------------------------------------------------


def test_formula_by_hand():
    # w_min = .6: E·T = 0 → 2·.4·½ + .6 = 1;  ln 3 → sigmoid(−ln 3) = 1/4 → .8·.25 + .6 = .8;  ∞ → .6.
    got = LOG.raw(jnp.array([0.0, np.log(3.0), 1e30]))
    np.testing.assert_allclose(got, [1.0, 0.8, 0.6], rtol=1e-6)


@pytest.mark.parametrize("power", [-8, -4, 0, 3, 8])
def test_log_search_meets_the_target_at_any_scale(power):
    base = errors()
    (t, found), weight = run(LOG, base * 10.0**power)
    assert found
    assert abs(weight.mean() - W_TAR) <= 1e-3
    np.testing.assert_allclose(weight, accuracy(base * 10.0**power, t), rtol=1e-4)
    # T is in the paper's units: it multiplies the raw error, so errors c times as large have T/c, same weights.
    (t_base, _), weight_base = run(LOG, base)
    np.testing.assert_allclose(t * 10.0**power, t_base, rtol=1e-3)
    np.testing.assert_allclose(weight, weight_base, atol=1e-4)


def test_temperature_against_a_float64_root():
    base = errors(3)
    low, high = 0.0, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if accuracy(base, middle).mean() > W_TAR else (low, middle)
    (t, _), _ = run(LOG, base)
    np.testing.assert_allclose(t, low, rtol=1e-4)


def test_heavy_tails_over_sixteen_decades():
    # E = 10^−8 … 10^8, evenly in the exponent: at any T about half a decade is in between, the rest at 1 or w_min.
    error = 10.0 ** np.linspace(-8, 8, SIZE)
    (t, found), weight = run(LOG, error)
    assert found and np.isfinite(t)
    assert abs(weight.mean() - W_TAR) <= 1e-3
    # Mean .9 = share·1 + (1 − share)·.6, so about 3/4 of the states keep weight 1.
    assert abs(np.mean(weight > 0.8) - 0.75) < 0.05


def test_equal_errors_get_equal_weights():
    # One error everywhere is not a failure: all weights are w_tar. .8·sigmoid(−ET) + .6 = .9 → ET = ln(5/3) = .510826.
    (t, found), weight = run(LOG, np.full(SIZE, 50.0))
    assert found
    np.testing.assert_allclose(weight, W_TAR, atol=1e-5)
    np.testing.assert_allclose(t, np.log(5 / 3) / 50, rtol=1e-4)


FAILURES = {
    "all zero": np.zeros(SIZE),
    # 80 % of the states have weight 1 at any T: the mean is at least .8 + .2·.6 = .92 > .9.
    "too many zeros": np.where(np.arange(SIZE) < 0.8 * SIZE, 0.0, 1.0),
    "not finite": np.where(np.arange(SIZE) == 0, np.inf, 1.0),
    "not a number": np.where(np.arange(SIZE) == 0, np.nan, 1.0),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failure_gives_uniform_weights_and_says_so(name):
    (t, found), weight = run(LOG, FAILURES[name])
    assert not found and t == 0
    np.testing.assert_array_equal(weight, np.ones(SIZE))


def test_just_enough_zeros():
    # 70 % zeros: the mean falls to .7 + .3·.6 = .88 < .9, so there is a T.
    (_, found), weight = run(LOG, np.where(np.arange(SIZE) < 0.7 * SIZE, 0.0, 1.0))
    assert found and abs(weight.mean() - W_TAR) <= 1e-3


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(1e-6, 1e6), min_size=SIZE, max_size=SIZE))
def test_weights_lie_in_range_and_fall_with_the_error(error):
    (_, found), weight = run(LOG, error)
    assert found  # no zeros among the errors: there always is a T
    assert abs(weight.astype(np.float64).mean() - W_TAR) <= 1e-3 + 1e-6
    assert np.all(weight > W_MIN - 1e-6) and np.all(weight <= 1)
    order = np.argsort(np.asarray(error, np.float32), kind="stable")
    assert np.all(np.diff(weight[order]) <= 1e-6)


# --- the authors' search -----------------------------------------------------------------------------------


def plain_search(raw, error, rising):
    """Bisects [0, 4096] and takes the first T with |mean − w_tar| ≤ 0.1: plain Python, float64."""
    low, high = 0.0, 4096.0
    for _ in range(60):
        t = (low + high) / 2
        gap = raw(error, t).mean() - W_TAR
        if abs(gap) <= 0.1:
            return t
        low, high = (t, high) if (gap < 0) == rising else (low, t)
    return None


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e9])
def test_paper_search_against_a_loop(scale):
    error = errors(1) * scale
    expected = plain_search(accuracy, error, rising=False)
    (t, found), weight = run(PAPER, error)
    assert found and t == expected
    np.testing.assert_allclose(weight, accuracy(error, t), rtol=1e-5)
    assert abs(weight.mean() - W_TAR) <= 0.1 + 1e-6
    # Errors of 1e-6: T = 2048, the first try, is accepted though all weights are nearly 1 (mean within .1 of .9).
    if scale == 1e-6:
        assert t == 2048 and weight.min() > 0.99


def test_paper_search_with_exploration_weights():
    error = errors(2)
    expected = plain_search(lambda e, t: e * t + 0.5, error, rising=True)
    (t, found), weight = run(EXPLORE_PAPER, error)
    assert found and t == expected
    assert abs(weight.mean() - W_TAR) <= 0.1 + 1e-6
    # Errors of 1e-6 are out of reach: at T = 4096 the mean is .504, and the search fails.
    (t, found), weight = run(EXPLORE_PAPER, error * 1e-6)
    assert not found and t == 0
    np.testing.assert_array_equal(weight, np.ones(SIZE))


def test_paper_search_failure():
    # 90 % zeros, 10 % huge: the mean is stuck at .9 + .1·.6 = .96, within .1 of .9, so the coarse search is content.
    (_, found), _ = run(PAPER, np.where(np.arange(SIZE) < 0.9 * SIZE, 0.0, 1e30))
    assert found
    # Not a number: no T is ever accepted.
    (t, found), weight = run(PAPER, FAILURES["not a number"])
    assert not found and t == 0
    np.testing.assert_array_equal(weight, np.ones(SIZE))


# --- exploration-seeking and uniform -----------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_exploration_closed_form(scale):
    # mean(E)·T + ½ = .9 → T = .4/mean(E). By hand: E = 1, 3 in equal shares, mean 2, T = .2, w = .7, 1.1.
    error = np.where(np.arange(SIZE) % 2 == 0, 1.0, 3.0) * scale
    (t, found), weight = run(EXPLORE, error)
    assert found
    np.testing.assert_allclose(t, 0.2 / scale, rtol=1e-5)
    np.testing.assert_allclose(weight, np.where(np.arange(SIZE) % 2 == 0, 0.7, 1.1), rtol=1e-5)


@pytest.mark.parametrize("name", ["all zero", "not finite", "not a number"])
def test_exploration_failure(name):
    (t, found), weight = run(EXPLORE, FAILURES[name])
    assert not found and t == 0
    np.testing.assert_array_equal(weight, np.ones(SIZE))


def test_uniform():
    uniform = Uniform(AgentConfig(w_tar=W_TAR, w_min=W_MIN, temperature="log"))
    assert not uniform.needs_error
    error = jnp.asarray(errors(), jnp.float32)
    np.testing.assert_array_equal(uniform.weights(error, uniform.search(error)), np.ones(SIZE))


# --- inverse variance --------------------------------------------------------------------------------------


def test_inverse_variance_against_scipy():
    """w = 1/(1 + vT) with mean 0.9, by a root search in float64; and the ratio of two weights is that of v + 1/T."""
    variance = np.random.default_rng(0).lognormal(3, 2, SIZE)
    weighting = InverseVariance(AgentConfig(weighting="inverse_variance", w_tar=0.9))
    temperature = weighting.search(jnp.asarray(variance, jnp.float32))
    t = optimize.brentq(lambda t: np.mean(1 / (1 + variance * t)) - 0.9, 1e-9, 1e9, xtol=1e-15)
    np.testing.assert_allclose(temperature.value, t, rtol=2e-3)
    w = weighting.weights(jnp.asarray(variance, jnp.float32), temperature)
    np.testing.assert_allclose(jnp.mean(w), 0.9, atol=1e-3)
    np.testing.assert_allclose(w[0] / w[1], (variance[1] + 1 / t) / (variance[0] + 1 / t), rtol=1e-3)
    assert AgentConfig(weighting="inverse_variance", w_tar=0.3).w_tar == 0.3, "w_min is not its concern"


def test_inverse_variance_is_made_from_the_spread_of_the_critic():
    learner = Learner(AgentConfig(weighting="inverse_variance", critic_hidden=(4,), policy_hidden=(4,)), SPEC)
    state, obs = learner.init(jnp.uint32(0)), jnp.asarray(np.random.default_rng(0).normal(size=(7, 3)), jnp.float32)
    told, own = learner.predict(state, obs), learner.critic.predict(state.critic, obs)
    np.testing.assert_allclose(told.error, own.std**2, rtol=1e-6)
    assert np.all(told.error != own.error)
    with pytest.raises(ConfigError, match="needs a critic with an error per state, and 'plain' has none"):
        Learner(AgentConfig(critic="plain", weighting="inverse_variance"), SPEC)


def test_two_bars_have_no_error_to_make_weights_from():
    """They fit a normal exactly: what is left is rounding."""
    for critic in ("normal", "quantile", "hl_gauss"):
        for weighting in ("accuracy", "exploration"):
            with pytest.raises(ConfigError, match=f"'{weighting}' needs n_quantiles of at least 3 with critic"):
                Learner(AgentConfig(critic=critic, weighting=weighting, n_quantiles=2), SPEC)
            Learner(AgentConfig(critic=critic, weighting=weighting, n_quantiles=3), SPEC)
        for weighting in ("uniform", "inverse_variance"):
            Learner(AgentConfig(critic=critic, weighting=weighting, n_quantiles=2), SPEC)
    Learner(AgentConfig(critic="ensemble", n_quantiles=2), SPEC)


# --- in the critic's loss ----------------------------------------------------------------------------------


def test_shares_in_the_critics_loss_by_hand():
    # v = 1 and 7, mean .5: T = 1/√7 solves ½(1/(1 + T) + 1/(1 + 7T)) = .5. With √7 = 2.645751 the weights are
    # .725708 and .274292, and their mean is .5: the first state counts 1.451416, the second .548584.
    np.testing.assert_allclose(shares(jnp.array([1.0, 7.0]), 0.5), [1.451416, 0.548584], rtol=1e-4)
    np.testing.assert_allclose(shares(jnp.array([1e8, 7e8]), 0.5), [1.451416, 0.548584], rtol=1e-4)
    np.testing.assert_array_equal(shares(jnp.zeros(3), 0.5), np.ones(3))


def test_weights_and_scaling_are_refused_where_nothing_varies():
    with pytest.raises(ConfigError, match=r"critic_w_tar needs a critic that weighs states.*'plain' does not"):
        Learner(AgentConfig(critic="plain", critic_w_tar=0.5), SPEC)
    for critic in ("plain", "quantile", "hl_gauss", "ensemble"):
        with pytest.raises(ConfigError, match=f"variance_scaling needs a critic.*'{critic}' is none"):
            Learner(AgentConfig(critic=critic, variance_scaling=True), SPEC)
    for wrong in (0.0, 1.0, -3.0):
        with pytest.raises(ConfigError, match="must be between 0 and 1, both excluded, or unset"):
            AgentConfig(critic_w_tar=wrong)
