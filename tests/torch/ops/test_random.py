"""Random operators: each draws from the distribution that torch documents, from its key alone.

Scipy's distributions are the measure, keys are fixed. A new operator without a case fails.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import stats
from torch._decomp import decomposition_table

import anyjax
from anyjax.torch.core.schema import table
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=8)
aten = torch.ops.aten
N = 4096
X = np.full(N, 0.3, np.float32)
P_VALUE = 1e-3  # one key is fixed: a failure is a wrong distribution, or one draw in a thousand


def coin(p, high=1.0, low=0.0):
    """Two values; ``high`` with probability ``p``."""
    return stats.rv_discrete(values=([0, 1], [1 - p, p])), (low, high)


class Case:
    """An operator of N numbers 0.3, and what it draws.

    ``law`` is a distribution of scipy's, or a pair of a discrete one and the values of its numbers.
    """

    def __init__(self, call, law):
        self.call, self.law = call, law


def ints(low, high):
    return stats.randint(low, high)


def rows(x):
    """A [N, 3] of weights 0.3, 0.6, 0.1 from N numbers 0.3."""
    return torch.stack([x, 2 * x, x / 3], -1)


def weights_of_three(x, n, replace):
    return aten.multinomial.default(rows(x), n, replace)[:, -1]


def alpha(p):
    a = 1.7580993408473766
    scale = 1 / np.sqrt((a**2 * p + 1) * (1 - p))
    return coin(1 - p, 0.3 * scale + a * p * scale, a * scale * (p - 1))


def channels(op):
    """A feature dropout of N samples with one channel each of two equal values."""

    def call(x):
        out = op(x[:, None, None].expand(N, 1, 2), 0.25, True)
        return out[:, 0, 0] + 1e9 * (out[:, 0, 1] - out[:, 0, 0])

    return call


LOGNORM = stats.lognorm(s=0.5, scale=np.exp(1.0))
THREE = stats.rv_discrete(values=([0, 1, 2], [0.3, 0.6, 0.1]))
SECOND = stats.rv_discrete(  # of two draws without replacement
    values=(
        [0, 1, 2],
        [0.6 * 0.3 / 0.4 + 0.1 * 0.3 / 0.9, 0.3 * 0.6 / 0.7 + 0.1 * 0.6 / 0.9,
         0.3 * 0.1 / 0.7 + 0.6 * 0.1 / 0.4],
    )
)  # fmt: skip
CASES = {
    aten._fused_dropout.default: Case(lambda x: aten._fused_dropout(x, 0.75)[0], coin(0.75, 0.4)),
    aten._sample_dirichlet.default: Case(
        lambda x: aten._sample_dirichlet(torch.stack([x, x + 1], -1))[:, 0], stats.beta(0.3, 1.3)
    ),
    aten._scaled_dot_product_flash_attention_for_cpu.default: Case(
        lambda x: aten._scaled_dot_product_flash_attention_for_cpu(
            *[x[:, None, None, None]] * 3, 0.25
        )[0].flatten(),
        coin(0.75, 0.4),
    ),
    aten.scaled_dot_product_attention.default: Case(
        lambda x: aten.scaled_dot_product_attention(*[x[:, None, None]] * 3, None, 0.25).flatten(),
        coin(0.75, 0.4),
    ),
    aten._standard_gamma.default: Case(aten._standard_gamma.default, stats.gamma(0.3)),
    aten.alpha_dropout.default: Case(lambda x: aten.alpha_dropout(x, 0.25, True), alpha(0.25)),
    aten.feature_alpha_dropout.default: Case(channels(aten.feature_alpha_dropout), alpha(0.25)),
    aten.feature_dropout.default: Case(channels(aten.feature_dropout), coin(0.75, 0.4)),
    aten.dropout.default: Case(lambda x: aten.dropout(x, 0.25, True), coin(0.75, 0.4)),
    aten.native_dropout.default: Case(
        lambda x: aten.native_dropout(x, 0.25, True)[0], coin(0.75, 0.4)
    ),
    aten.bernoulli.default: Case(lambda x: aten.bernoulli(x), coin(0.3)),
    aten.bernoulli.p: Case(lambda x: aten.bernoulli.p(x, 0.8), coin(0.8)),
    aten.bernoulli.Tensor: Case(lambda x: aten.bernoulli.Tensor(x, x + 0.5), coin(0.8)),
    aten.binomial.default: Case(lambda x: aten.binomial(x * 0 + 9, x), stats.binom(9, 0.3)),
    aten.poisson.default: Case(lambda x: aten.poisson(x + 2), stats.poisson(2.3)),
    aten.cauchy.default: Case(lambda x: aten.cauchy(x, 1.0, 2.0), stats.cauchy(1, 2)),
    aten.exponential.default: Case(lambda x: aten.exponential(x, 2.0), stats.expon(scale=0.5)),
    aten.geometric.default: Case(lambda x: aten.geometric(x, 0.4), stats.geom(0.4)),
    aten.log_normal.default: Case(lambda x: aten.log_normal(x, 1.0, 0.5), LOGNORM),
    aten.multinomial.default: Case(lambda x: weights_of_three(x, 1, False), THREE),
    aten.normal.Tensor_float: Case(lambda x: aten.normal.Tensor_float(x, 2.0), stats.norm(0.3, 2)),
    aten.normal.float_Tensor: Case(
        lambda x: aten.normal.float_Tensor(5.0, x + 2), stats.norm(5, 2.3)
    ),
    aten.normal.Tensor_Tensor: Case(
        lambda x: aten.normal.Tensor_Tensor(x, x + 2), stats.norm(0.3, 2.3)
    ),
    aten.normal.float_float: Case(lambda x: aten.normal(5.0, 2.0, [N]), stats.norm(5, 2)),
    aten.normal_functional.default: Case(
        lambda x: aten.normal_functional(x, 5.0, 2.0), stats.norm(5, 2)
    ),
    aten.rand.default: Case(lambda x: aten.rand([N]), stats.uniform()),
    aten.rand.generator: Case(lambda x: aten.rand.generator([N], generator=None), stats.uniform()),
    aten.rand_like.default: Case(aten.rand_like.default, stats.uniform()),
    aten.rand_like.generator: Case(
        lambda x: aten.rand_like.generator(x, generator=None), stats.uniform()
    ),
    aten.randint.default: Case(lambda x: aten.randint(7, [N]), ints(0, 7)),
    aten.randint.generator: Case(
        lambda x: aten.randint.generator(7, [N], generator=None), ints(0, 7)
    ),
    aten.randint.low: Case(lambda x: aten.randint.low(-3, 4, [N]), ints(-3, 4)),
    aten.randint.low_generator: Case(
        lambda x: aten.randint.low_generator(-3, 4, [N], generator=None), ints(-3, 4)
    ),
    aten.randint_like.default: Case(lambda x: aten.randint_like(x, 7), ints(0, 7)),
    aten.randint_like.Tensor: Case(
        lambda x: aten.randint_like.Tensor(x, torch.tensor(7)), ints(0, 7)
    ),
    aten.randint_like.low_dtype: Case(
        lambda x: aten.randint_like.low_dtype(x, -3, 4), ints(-3, 4)
    ),
    aten.randint_like.generator: Case(
        lambda x: aten.randint_like.generator(x, 7, generator=None), ints(0, 7)
    ),
    aten.randint_like.Tensor_generator: Case(
        lambda x: aten.randint_like.Tensor_generator(x, torch.tensor(7), generator=None), ints(0, 7)
    ),
    aten.randint_like.low_generator_dtype: Case(
        lambda x: aten.randint_like.low_generator_dtype(x, -3, 4, generator=None), ints(-3, 4)
    ),
    aten.randn.default: Case(lambda x: aten.randn([N]), stats.norm()),
    aten.randn.generator: Case(lambda x: aten.randn.generator([N], generator=None), stats.norm()),
    aten.randn_like.default: Case(aten.randn_like.default, stats.norm()),
    aten.randn_like.generator: Case(
        lambda x: aten.randn_like.generator(x, generator=None), stats.norm()
    ),
    getattr(aten.random, "from"): Case(
        lambda x: getattr(aten.random, "from")(x, -3, 4), ints(-3, 4)
    ),
    aten.random.to: Case(lambda x: aten.random.to(x, 7), ints(0, 7)),
    aten.random.default: Case(
        lambda x: aten.random(x.to(torch.int8)) // 16, ints(0, 8)
    ),
    aten.randperm.default: Case(lambda x: aten.randperm(N) % 8, ints(0, 8)),
    aten.randperm.generator: Case(
        lambda x: aten.randperm.generator(N, generator=None) % 8, ints(0, 8)
    ),
    aten.rrelu.default: Case(
        lambda x: aten.rrelu(x - 1.3, 0.25, 0.5, True), stats.uniform(-0.5, 0.25)
    ),
    aten.rrelu_with_noise_functional.default: Case(
        lambda x: aten.rrelu_with_noise_functional(x - 1.3, x, 0.25, 0.5, True)[1],
        stats.uniform(0.25, 0.25),
    ),
    aten.uniform.default: Case(lambda x: aten.uniform(x, -1.0, 3.0), stats.uniform(-1, 4)),
}  # fmt: skip
MORE = {
    "multinomial, replacement": Case(lambda x: weights_of_three(x, 2, True), THREE),
    "multinomial, second": Case(lambda x: weights_of_three(x, 2, False), SECOND),
    "poisson, 0": Case(lambda x: torch.poisson(x * 0), stats.randint(0, 1)),
    "poisson, large": Case(lambda x: torch.poisson(x * 0 + 40.0), stats.poisson(40)),
    "binomial, large": Case(
        lambda x: torch.binomial(x * 0 + 200, x * 0 + 0.7), stats.binom(200, 0.7)
    ),
    "gamma, large": Case(lambda x: torch._standard_gamma(x * 0 + 7.0), stats.gamma(7)),
    "exponential_": Case(lambda x: x.clone().exponential_(3.0), stats.expon(scale=1 / 3)),
    "normal_": Case(lambda x: torch.empty(N).normal_(2.0, 3.0), stats.norm(2, 3)),
    "uniform_": Case(lambda x: torch.empty(N).uniform_(2.0, 3.0), stats.uniform(2)),
    "log_normal_": Case(lambda x: torch.empty(N).log_normal_(1.0, 0.5), LOGNORM),
    "cauchy_": Case(lambda x: torch.empty(N).cauchy_(1.0, 2.0), stats.cauchy(1, 2)),
    "geometric_": Case(lambda x: torch.empty(N).geometric_(0.4), stats.geom(0.4)),
    "bernoulli_": Case(lambda x: x.clone().bernoulli_(0.4), coin(0.4)),
    "bernoulli_ of a tensor": Case(lambda x: x.clone().bernoulli_(x * 2), coin(0.6)),
    "random_": Case(lambda x: torch.empty(N).random_(2, 9), ints(2, 9)),
    "random_ of bools": Case(lambda x: torch.zeros(N, dtype=torch.bool).random_() * 1, ints(0, 2)),
    "gumbel_softmax": Case(
        lambda x: torch.nn.functional.gumbel_softmax(rows(x).log(), hard=True).argmax(-1), THREE
    ),
    "dropout2d": Case(
        lambda x: torch.nn.functional.dropout2d(x.reshape(1, N, 1, 1), 0.25).flatten(),
        coin(0.75, 0.4),
    ),
    "dropout_": Case(
        lambda x: torch.nn.functional.dropout(x.clone(), 0.25, inplace=True), coin(0.75, 0.4)
    ),
    "rrelu_": Case(
        lambda x: torch.nn.functional.rrelu(x - 1.3, 0.25, 0.5, True, inplace=True),
        stats.uniform(-0.5, 0.25),
    ),
    "normal, out": Case(lambda x: torch.normal(x, 2.0, out=torch.empty(N)), stats.norm(0.3, 2)),
    "vmap, different": Case(
        lambda x: torch.vmap(lambda a: a + torch.rand(()), randomness="different")(x),
        stats.uniform(0.3),
    ),
}
ALL = {str(op): case for op, case in CASES.items()} | MORE
LAYERS = {"gru", "lstm", "rnn_relu", "rnn_tanh"}  # dropout between layers: tests/torch/ops/test_rnn


def served(op):
    """Whether a functional operator has a row or a decomposition."""
    return bool(table.find(op)) or op in decomposition_table


def tagged():
    packets = [getattr(aten, name) for name in dir(aten)]
    ops = [getattr(p, o) for p in packets if hasattr(p, "overloads") for o in p.overloads()]
    return {
        op
        for op in ops
        if torch.Tag.nondeterministic_seeded in op.tags
        and not any(a.is_write for a in op._schema.arguments)
        and "Dimname" not in str(op._schema)
    }


def test_every_random_operator_is_tested():
    named = {op for op in tagged() if served(op)}
    layers = {op for op in named if op._schema.name.removeprefix("aten::") in LAYERS}
    assert named - layers == set(CASES)


def follows(draws, law):
    """The p-value of the draws."""
    if isinstance(law, tuple):
        law, (low, high) = law
        assert_close(np.where(draws > (low + high) / 2, high, low).astype(draws.dtype), draws)
        draws = (draws > (low + high) / 2).astype(int)
    if not hasattr(law, "pmf"):
        return stats.kstest(draws, law.cdf).pvalue
    low, high = int(law.ppf(1e-3)), int(law.ppf(1 - 1e-3))
    assert (draws == np.round(draws)).all()
    assert law.pmf(draws).min() > 0
    bins = np.arange(low, high + 1)
    if len(bins) == 1:
        return 1.0
    seen = np.array([(np.clip(draws, low, high) == b).sum() for b in bins])
    mass = law.pmf(bins)
    mass[0], mass[-1] = law.cdf(low), law.sf(high - 1)
    return stats.chisquare(seen, mass * len(draws)).pvalue


def model_of(case):
    """A function (x, key) -> [2, N], two draws of one call."""
    model = anyjax.from_torch(lambda x: torch.stack([case.call(x), case.call(x)]).float())
    return lambda x, key: model.apply({}, x, rng=key)


@pytest.mark.parametrize("name", ALL)
def test_draws(name):
    """They follow the law, and one key gives the same twice, but not in one call."""
    run = jax.jit(model_of(ALL[name]))
    draws = run(X, jax.random.key(0))
    assert draws.shape == (2, N)
    assert np.isfinite(draws).all()
    assert follows(np.asarray(draws[0]), ALL[name].law) > P_VALUE
    assert_close(run(X, jax.random.key(0)), draws)
    if name != "poisson, 0":
        assert (draws[0] != draws[1]).any(), "the second draw repeats the first"
        assert (draws != run(X, jax.random.key(1))).any(), "another key draws the same"


def assert_maps(name):
    """vmap over keys is a loop, and every draw has a finite gradient."""
    run = model_of(ALL[name])

    def loss(x, key):
        out = run(x, key)
        return out.sum(), out

    keys = jax.random.split(jax.random.key(0), 2)
    both = jax.jit(jax.vmap(jax.grad(loss, has_aux=True), (None, 0)))
    grads, outs = both(X, keys)
    assert np.isfinite(grads).all()
    assert_close(outs[1], jax.jit(run)(X, keys[1]), reduction=4)


@pytest.mark.parametrize("name", ["aten.dropout.default", "normal_", "aten.rand_like.default"])
def test_vmap_and_grad(name):
    assert_maps(name)


@pytest.mark.conformance
@pytest.mark.parametrize("name", ALL)
def test_vmap_and_grad_of_all(name):
    assert_maps(name)


class Loop(torch.nn.Module):
    """One Dropout of several in a list."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Dropout(0.5, inplace=i > 1) for i in range(4))

    def forward(self, x):
        return torch.stack([layer(x * 1) for layer in self.layers])


def test_every_dropout_of_a_loop_has_its_own_mask():
    out = np.asarray(anyjax.from_torch(Loop()).train()(X, rng=jax.random.key(0)))
    assert len({tuple(row) for row in out}) == 4
    assert_close(out.max(), 0.6)
    assert_close(anyjax.from_torch(Loop()).eval()(X), np.stack([X] * 4))


@pytest.mark.parametrize("name", ["Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"])
def test_in_place_draws_the_same(name):
    x = np.ones((4, 3, 2, 2), np.float32)
    layer = getattr(torch.nn, name)
    one, other = (
        anyjax.from_torch(layer(0.5, inplace=inplace)).train()(x, rng=jax.random.key(0))
        for inplace in (False, True)
    )
    assert_close(one, other)
    assert (one != x).any()
    assert_close(anyjax.from_torch(layer(0.5, inplace=True)).eval()(x), x)


class Noise(torch.autograd.Function):
    """x * noise, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        noise = torch.rand(N)
        ctx.save_for_backward(noise)
        return x * noise

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def test_a_custom_gradient_draws_once():
    """Also where JAX traces its forward a second time, after jit."""
    model = anyjax.from_torch(lambda x: (torch.rand(N), Noise.apply(x), torch.rand(N)))
    run = jax.jit(lambda x, key: model.apply({}, x, rng=key))
    before, noisy, after = run(X, jax.random.key(0))
    grad = jax.grad(lambda x: run(x, jax.random.key(0))[1].sum())(X)
    assert_close(grad * X, noisy)
    assert len({float(v[0]) for v in (before, grad, after)}) == 3


def test_vmap_inside_a_forward():
    add = lambda a: a + torch.rand(())
    inside = lambda how: anyjax.from_torch(lambda x: torch.vmap(add, randomness=how)(x))
    assert len(np.unique(inside("same")(X, rng=jax.random.key(0)))) == 1
    assert len(np.unique(inside("different")(X, rng=jax.random.key(0)))) > N // 2


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_alpha_dropout_keeps_the_dtype(dtype, x64):
    drop = lambda x: torch.nn.functional.alpha_dropout(x.sum(), 0.5, training=True)
    with jax.enable_x64(x64):
        got = anyjax.from_torch(drop).apply({}, jnp.ones(3, dtype), rng=jax.random.key(0))
    assert got.dtype == dtype


ALL_DROPPED = {
    "dropout": torch.nn.Dropout(1.0),
    "in place": torch.nn.Dropout(1.0, inplace=True),
    "dropout1d": torch.nn.Dropout1d(1.0),
    "alpha_dropout": torch.nn.AlphaDropout(1.0),
    "feature_alpha_dropout": torch.nn.FeatureAlphaDropout(1.0),
    "function": lambda x: torch.nn.functional.dropout(x, 1.0, True),
}


@pytest.mark.parametrize("name", ALL_DROPPED)
def test_dropout_of_everything(name):
    """Nothing is drawn, so that no key is needed; infinities become NaN, as in torch."""
    function, x = ALL_DROPPED[name], np.array([[[1, -2, 0]], [[3, 4, 5]]], np.float32)
    model = anyjax.from_torch(function)
    model = model.train() if isinstance(function, torch.nn.Module) else model
    for given in (x, np.where(x == 4, np.float32(np.inf), x)):
        assert_close(model.apply({}, given), function(torch.from_numpy(given.copy())).numpy())
    gradient = jax.grad(lambda x: model.apply({}, x).sum())(x)
    assert_close(gradient, np.zeros_like(x))
