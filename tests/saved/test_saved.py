"""Saved models: gradients, states, draws, errors."""

import pickle

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.saved.programs import exported
from tests.tolerance import assert_close

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def test_arrays_that_lie_in_another_order(tmp_path):
    """Views, and columns first."""
    w = np.arange(6, dtype="f").reshape(3, 2)
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    for weight in (w.T, np.asfortranarray(w.T), w.reshape(2, 3)[::-1]):
        given = model.with_params({"weight": weight, "bias": np.arange(4.0, dtype="f")[::2]})
        given.save(tmp_path / "m", X)
        back = anyjax.load(tmp_path / "m")
        np.testing.assert_array_equal(back.params["weight"], weight)
        np.testing.assert_array_equal(back.params["bias"], [0, 2])
        assert_close(back(X), X @ np.asarray(weight).T + [0, 2], reduction=3)


def test_gradients_state_and_randomness_survive(tmp_path):
    net = torch.nn.Sequential(
        torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5)
    ).train()
    model, key = anyjax.from_torch(net), jax.random.key(3)
    model.save(tmp_path / "net", X, rng=key)
    back = anyjax.load(tmp_path / "net")

    def loss(m, params):
        out, state = m.apply(params, X, rng=key, mutable=True)
        return (out**2).sum(), state

    (want, want_state), want_grads = jax.value_and_grad(lambda p: loss(model, p), has_aux=True)(
        model.params
    )
    (got, got_state), got_grads = jax.value_and_grad(lambda p: loss(back, p), has_aux=True)(
        back.params
    )
    assert_close((got, got_state), (want, want_state), reduction=12)
    assert_close(got_grads, want_grads, reduction=144, scale=1.0)


def test_calls_that_were_not_saved_are_refused(tmp_path):
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    with pytest.raises(WrongArguments, match="there is no call to save"):
        model.save(tmp_path / "m")
    model.save(tmp_path / "m", X)
    back = anyjax.load(tmp_path / "m")
    with pytest.raises(WrongArguments, match="no program was saved for"):
        back(X[:2])
    with pytest.raises(Unsupported, match="one mode"):
        back.eval()
    with pytest.raises(Unsupported, match="no torch module"):
        back.to_torch()


def test_a_key_alone_is_an_example(tmp_path):
    model = anyjax.from_torch(lambda: torch.rand(4))
    key = jax.random.key(0)
    model.save(tmp_path / "m", rng=key)
    np.testing.assert_array_equal(anyjax.load(tmp_path / "m")(rng=key), model(rng=key))


class Cut(torch.nn.Module):
    """A buffer of one integer decides the shape of the output."""

    def __init__(self):
        super().__init__()
        self.register_buffer("width", torch.tensor(2))

    def forward(self, x):
        return x[:, : int(self.width)]


def test_a_buffer_that_decides_a_shape_is_part_of_the_program(tmp_path):
    model = anyjax.from_torch(Cut())
    model.save(tmp_path / "saved", X)
    loaded = anyjax.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded(X), X[:, :2])
    with pytest.raises(WrongArguments, match="width is 3, in the saved program 2"):
        loaded.apply(loaded.params, X, state={"width": np.array(3)})


def test_arguments_by_name_in_another_order(tmp_path):
    """By position they come as the function has them, by name in alphabetical order."""
    model = anyjax.from_torch(lambda query, key: query - 2 * key)
    model.save(tmp_path / "m", X, X + 1)
    back = anyjax.load(tmp_path / "m")
    for call in (lambda m: m(X, X + 1), lambda m: m(key=X + 1, query=X), lambda m: m(X, key=X + 1)):
        np.testing.assert_array_equal(call(back), call(model))


def test_vmap_is_refused(tmp_path):
    """Under jit and grad as well; one after the other works."""
    model = anyjax.from_torch(torch.nn.Conv2d(1, 2, 3))
    x = np.ones((3, 1, 1, 8, 8), np.float32)
    model.save(tmp_path / "m", x[0])
    back = anyjax.load(tmp_path / "m")
    one = lambda x: back.apply(back.params, x)
    for call in (jax.vmap(one), jax.vmap(back), jax.jit(jax.vmap(one))):
        with pytest.raises(
            Unsupported, match=r"(?s)jax\.vmap over Conv2d.*batch, \.\.\..*lax\.map"
        ):
            call(x)
    assert_close(jax.lax.map(one, x)[0], model(x[0]), reduction=9)


def test_shapes_are_suggested_for_what_the_model_takes(tmp_path):
    image = np.ones((1, 1, 8, 8), np.float32)
    model = anyjax.from_torch(torch.nn.Conv2d(1, 2, 3))
    suggested = r'shapes=\{"input": "batch, \.\.\."\}'
    with pytest.raises(WrongArguments, match=suggested):
        model.save(tmp_path / "m", image, shapes={"x": "batch, ..."})
    model.save(tmp_path / "m", image)
    with pytest.raises(WrongArguments, match=suggested):
        anyjax.load(tmp_path / "m")(np.ones((2, 1, 8, 8), np.float32))


def test_pickles(tmp_path):
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    model.save(tmp_path / "linear", X, shapes={"input": "batch, 3"})
    back = pickle.loads(pickle.dumps(anyjax.load(tmp_path / "linear")))
    zeros = {k: np.zeros_like(v) for k, v in back.params.items()}
    np.testing.assert_array_equal(back(X[:2]), model(X[:2]))
    assert not back.apply(zeros, X).any()


@pytest.mark.parametrize("again", [{}, {"platforms": ("cpu",)}, {"shapes": {"input": "n, ..."}}])
def test_a_loaded_model_is_saved_again(tmp_path, again):
    module, x = torch.nn.Linear(3, 2), np.ones((4, 3), np.float32)
    options = {"shapes": {"input": "n, ..."}, "platforms": ("cpu", "tpu")}
    anyjax.from_torch(module).save(tmp_path / "m", x, **options)
    model = anyjax.load(tmp_path / "m")
    model = model.with_params({k: 2 * v for k, v in model.params.items()})
    model.save(tmp_path / "again", x, **again)
    back = anyjax.load(tmp_path / "again")
    want = 2 * module(torch.ones(7, 3)).detach().numpy()
    np.testing.assert_allclose(back(np.ones((7, 3), np.float32)), want, rtol=1e-5)
    slope = jax.grad(lambda params: back.apply(params, x).sum())(dict(back.params))
    np.testing.assert_allclose(slope["bias"], [4, 4])


@pytest.mark.parametrize(
    ("args", "options", "said"),
    [
        ((4, 3), {"platforms": ("cpu", "cuda")}, "has no programs for cuda"),
        ((5, 3), {}, "no program was saved for"),
        ((4, 3), {"shapes": {"input": "n, ..."}}, "open sizes|no program was saved for"),
    ],
)
def test_programs_that_a_loaded_model_lacks(tmp_path, args, options, said):
    x = np.ones((4, 3), np.float32)
    anyjax.from_torch(torch.nn.Linear(3, 2)).save(tmp_path / "m", x, platforms=("cpu",))
    model = anyjax.load(tmp_path / "m")
    with pytest.raises((Unsupported, WrongArguments), match=said):
        model.save(tmp_path / "again", np.ones(args, np.float32), **options)
    assert not (tmp_path / "again").exists()


def test_a_loaded_model_inside_of_a_program_for_other_platforms(tmp_path):
    x = np.ones((4, 3), np.float32)
    anyjax.from_torch(torch.nn.ReLU()).save(tmp_path / "m", x, platforms=("cpu",))
    with pytest.raises(Unsupported, match=r"a model that was loaded(?s:.*)give platforms="):
        exported(anyjax.load(tmp_path / "m"), ("tpu",))(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e5m2])
def test_tensors_of_torch_in_dtypes_that_numpy_lacks(dtype, tmp_path):
    anyjax.from_torch(lambda x: x.float() * 2).save(tmp_path, torch.ones(3, 2).to(dtype))
    x = torch.arange(12.0).reshape(3, 4).to(dtype)[:, ::2].requires_grad_()  # in no order of JAX's
    np.testing.assert_array_equal(anyjax.load(tmp_path)(x), 2 * x.detach().float())
