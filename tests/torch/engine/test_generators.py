"""Numbers of a generator that forward seeds itself: torch's own, without a key."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import FrozenDraw, MissingRng, Unsupported
from tests.tolerance import assert_close
from tests.torch.beside_torch import assert_same_values

pytestmark = pytest.mark.sample(every=4)

X = np.arange(1, 5, dtype=np.float32)
seeded = lambda: torch.Generator().manual_seed(3)


def several(x):
    """One after another from one generator."""
    g = seeded()
    return (
        x + torch.randn(4, generator=g),
        torch.rand(3, generator=g),
        torch.randperm(5, generator=g).float(),
        torch.randint(0, 9, (3,), generator=g).float(),
        torch.multinomial(torch.ones(4), 2, generator=g).float(),
        torch.bernoulli(torch.full((4,), 0.5), generator=g),
    )


def two(x):
    """Two with the same seed draw the same."""
    return x + torch.rand(4, generator=seeded()), torch.rand(4, generator=seeded())


DRAWS = {
    "several": several,
    "two": two,
    "normal_": lambda x: x + torch.empty(4).normal_(generator=seeded()),
    "exponential_": lambda x: x * torch.empty(4).exponential_(2.0, generator=seeded()),
    "geometric_": lambda x: x * torch.empty_like(x).geometric_(0.5, generator=seeded()),
    "cauchy_": lambda x: x * torch.empty(4).cauchy_(1.0, 2.0, generator=seeded()),
    "log_normal_": lambda x: x * x.clone().log_normal_(generator=seeded()),
    "in place of what is traced": lambda x: x.clone().normal_(generator=seeded()),
    "like what is traced": lambda x: torch.empty_like(x).uniform_(generator=seeded()),
    "rand_like": lambda x: torch.rand_like(x, generator=seeded()),
    "bernoulli_": lambda x: torch.zeros(4).bernoulli_(0.5, generator=seeded()) + x,
    "random_": lambda x: torch.zeros(4).random_(9, generator=seeded()) + x,
    "normal": lambda x: x + torch.normal(torch.zeros(4), torch.ones(4), generator=seeded()),
    "large": lambda x: x + torch.randn(300, 300, generator=seeded())[7, :4],
    "trunc_normal_": lambda x: torch.nn.init.trunc_normal_(torch.empty(4), generator=seeded()) + x,
    "xavier": lambda x: torch.nn.init.xavier_normal_(torch.empty(4, 4), generator=seeded()) + x,
}


@pytest.mark.parametrize("name", DRAWS)
def test_of_a_seed(name):
    assert_same_values(DRAWS[name], X)


def test_beside_a_key():
    """The key is for the other draws."""
    both = lambda x: (torch.rand(4, generator=seeded()), torch.rand_like(x))
    model = anyjax.from_torch(both)
    (one, first), (other, second) = (model(X, rng=jax.random.key(i)) for i in range(2))
    assert_close(one, other)
    assert_close(one, torch.rand(4, generator=seeded()).numpy())
    assert (first != second).any()


def test_one_that_draws_on():
    """Each call of torch has other numbers; a program would repeat them."""
    held = seeded()
    model = anyjax.from_torch(lambda x: x + torch.rand(4, generator=held))
    with pytest.warns(FrozenDraw, match="torch.Generator"):
        jax.jit(model.apply)({}, X)
    with pytest.raises(MissingRng):  # by now something was drawn
        model.apply({}, X)


def reseeded(x):
    torch.manual_seed(3)
    first = torch.rand(4)
    torch.manual_seed(3)
    return x + first, torch.rand_like(x), torch.randn(300, 300)[7, :4] + x


def forked(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        inside = torch.rand(4)
    return x + inside


def saved_and_set(x):
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = torch.rand(4)
    torch.set_rng_state(state)
    return x + first, torch.rand(4)


DEFAULT = {
    "reseeded": reseeded,
    "forked": forked,
    "state": saved_and_set,
    "initialised": lambda x: torch.manual_seed(1) and torch.nn.Linear(4, 4)(x).detach(),
    "in place": lambda x: torch.manual_seed(1) and x.clone().uniform_() + torch.zeros(4).normal_(),
    "permutation": lambda x: torch.manual_seed(1) and x[torch.randperm(4)],
}


@pytest.mark.parametrize("name", DEFAULT)
def test_of_torchs_own_generator_once_forward_seeds_it(name):
    before = torch.get_rng_state()
    assert_same_values(lambda x: DEFAULT[name](x), X)
    torch.set_rng_state(before)
    anyjax.from_torch(DEFAULT[name])(X)
    assert torch.equal(torch.get_rng_state(), before)  # torch's own goes on as it was


def test_after_a_fork_draws_follow_from_the_key_again():
    model = anyjax.from_torch(lambda x: (forked(x), torch.rand(4)))
    (one, first), (other, second) = (model(X, rng=jax.random.key(i)) for i in range(2))
    assert_close(one, other)
    assert (first != second).any()


def test_a_draw_that_a_seed_does_not_decide_is_refused():
    def dropped(x):
        torch.manual_seed(0)
        return torch.nn.functional.dropout(x)

    with pytest.raises(Unsupported, match=r"after torch\.manual_seed") as error:
        anyjax.from_torch(dropped)(X, rng=jax.random.key(0))
    assert "test_generators.py" in str(error.value)


def restored(x):
    state = torch.get_rng_state()
    first, second = torch.rand(4), torch.rand(4)
    torch.set_rng_state(state)
    return first - torch.rand(4) + x, second - torch.rand(4), first


def restored_by_the_generator(x):
    state = torch.default_generator.get_state()
    first, second = torch.rand(4), torch.rand(4, generator=torch.default_generator)
    torch.random.default_generator.set_state(state)
    return first - torch.rand(4) + x, second - torch.rand(4), first


def drawn_after_a_seed_of_the_machine(x):
    torch.manual_seed(0)
    torch.rand(4)
    torch.seed()
    first = torch.rand(4)
    return x, first - first, first


def repeated_after_a_fork(x):
    with torch.random.fork_rng(devices=[]):
        first = torch.rand(4)
    return first - torch.rand(4) + x, torch.rand(4) - first, first


@pytest.mark.parametrize(
    "function",
    [restored, restored_by_the_generator, drawn_after_a_seed_of_the_machine, repeated_after_a_fork],
)
def test_states_are_those_of_the_key(function):
    model = anyjax.from_torch(function)
    same, zero_or_not, drawn = model.apply({}, X, rng=jax.random.key(1))
    np.testing.assert_array_equal(same, X)
    assert (np.asarray(zero_or_not) == 0).all() == (function is not repeated_after_a_fork)
    assert (drawn != model.apply({}, X, rng=jax.random.key(2))[2]).any()


def test_the_default_generators_own_method():
    def function(x):
        torch.default_generator.manual_seed(4)
        first = torch.rand(4)
        assert torch.initial_seed() == 4
        torch.default_generator.manual_seed(4)
        return first - torch.rand(4) + x, first

    with torch.random.fork_rng(devices=[]):
        assert_same_values(function, X)
    draws = anyjax.from_torch(lambda x: torch.rand(4) + x).apply
    torch.rand(1)  # another thread's draw is none of forward's
    assert (draws({}, X, rng=jax.random.key(1)) != draws({}, X, rng=jax.random.key(2))).any()
