"""Source code in Linen: values, gradients, other sizes, training, weights that do not fit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx
from flax.training.train_state import TrainState
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

import anyjax
from tests.flax.codegen.models import CASES, MLP, drawn, ids
from tests.flax.codegen.running import arrays, assert_same_values, leaves, loaded
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=15)


def prepared(module, inputs, **how):
    """(the file, its model, the model's variables)."""
    file = loaded(anyjax.flax.source(module, *inputs, style="linen", **how))
    return file, getattr(file, type(module).__name__)(), file.load_params(weights(module))


def weights(module):
    return {k: v.detach().numpy() for k, v in module.state_dict().items()}


def assert_same_slopes(module, file, model, variables, inputs):
    """The gradients of the sum of sines; the file's loader knows their names."""
    module.zero_grad()
    sum((3 * x).sin().sum() for x in leaves(module(*inputs))).backward()
    slopes = {k: p.grad for k, p in module.named_parameters() if p.grad is not None}
    nothing = {k: np.zeros_like(x) for k, x in weights(module).items()}
    want = file.load_params(nothing | {k: x.numpy() for k, x in slopes.items()})["params"]
    rest = {k: x for k, x in variables.items() if k != "params"}

    def loss(params):
        out = model.apply({"params": params, **rest}, *arrays(inputs))
        return sum(jnp.sin(3 * y).sum() for y in leaves(out))

    gradients = jax.grad(loss)(variables["params"])
    jax.tree.map(lambda x, y: assert_close(x, y, reduction=256), gradients, want)


@pytest.mark.parametrize("name", CASES)
def test_plain_modules(name):
    cls, inputs, other_inputs = CASES[name]
    torch.manual_seed(0)
    module = cls().eval()
    for submodule in module.modules():
        if isinstance(submodule, torch.nn.BatchNorm2d):
            submodule.running_mean.normal_()
            submodule.running_var.uniform_(0.5, 2)
    file, model, variables = prepared(module, inputs)
    apply = lambda *x: model.apply(variables, *x)
    assert_same_values(module, apply, inputs)
    assert_same_values(module, apply, other_inputs)
    if variables.get("params"):
        assert_same_slopes(module, file, model, variables, inputs)
    fresh, initialised = model.init_with_output(jax.random.key(1), *arrays(inputs))
    assert jax.tree.structure(initialised) == jax.tree.structure(variables)
    assert all(np.isfinite(x).all() for x in leaves(fresh))


def test_training_mode():
    """Dropout draws by its key, and BatchNorm keeps statistics of the batch where it may."""
    cls, inputs, _ = CASES["cnn"]
    _, model, variables = prepared(cls(), inputs)

    def step(seed):
        return model.apply(
            variables,
            *arrays(inputs),
            deterministic=False,
            rngs={"dropout": jax.random.key(seed)},
            mutable=["batch_stats"],
        )

    (first, updated), (same, _), (second, _) = step(0), step(0), step(1)
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - second).max() > 1e-3
    initial = variables["batch_stats"]["bn1"]["mean"]
    assert np.abs(updated["batch_stats"]["bn1"]["mean"] - initial).max() > 1e-3


@pytest.mark.parametrize("name", ["vit", "generator", "resnet", "pooled"])
def test_all_layers_are_told_of_training(name):
    """Those in a Sequential and in a list, and dropout as a function."""
    cls, inputs, _ = CASES[name]
    _, model, variables = prepared(cls().eval(), inputs)

    def run(**how):
        rngs = {"dropout": jax.random.key(0)}
        values = arrays(inputs)
        out, updated = model.apply(variables, *values, rngs=rngs, mutable=["batch_stats"], **how)
        return leaves(out)[0], updated

    trained, updated = run(deterministic=False)
    assert np.abs(trained - run()[0]).max() > 1e-4
    initial = {k: variables[k] for k in updated}
    moved = jax.tree.map(lambda x, y: bool((x != y).any()), updated, initial)
    assert all(jax.tree.leaves(moved))


def test_a_train_state_learns():
    _, model, variables = prepared(MLP(), (drawn(5, 8),))
    x, y = drawn(32, 8).numpy(), np.arange(32) % 4
    tx = optax.adam(1e-2)
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=tx)

    @jax.jit
    def step(state, key):
        def loss(params):
            variables = {"params": params}
            out = state.apply_fn(variables, x, deterministic=False, rngs={"dropout": key})
            return optax.softmax_cross_entropy_with_integer_labels(out, y).mean()

        value, slopes = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=slopes), value

    losses = []
    for key in jax.random.split(jax.random.key(0), 40):
        state, value = step(state, key)
        losses.append(float(value))
    assert losses[-1] < 0.8 * losses[0]


def test_llama():
    sizes = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=60)
    sizes |= dict(num_attention_heads=6, num_key_value_heads=3, head_dim=10)
    torch.manual_seed(0)
    module = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    ones = torch.ones(2, 7, dtype=torch.int64)
    file, model, variables = prepared(
        module, (), input_ids=ids(2, 7), attention_mask=ones, use_cache=False
    )
    inputs = ids(3, 9), torch.ones(3, 9, dtype=torch.int64)
    forward = lambda x, mask: module(x, attention_mask=mask).logits
    assert_same_values(forward, lambda *x: model.apply(variables, *x), inputs)
    assert file.LlamaForCausalLM().config == file.LlamaConfig()


@pytest.mark.parametrize("style", ["nnx", "linen"])
def test_weights_that_do_not_fit_are_all_listed(style):
    module = MLP()
    file = loaded(anyjax.flax.source(module, drawn(5, 8), style=style))
    state = weights(module)
    del state["layers.1.weight"], state["out.bias"]
    state["layers.0.weight"] = np.ones((3, 4), "float32")
    state["out.weight"] = np.ones(3, "float32")
    model = [file.MLP(rngs=nnx.Rngs(0))] if style == "nnx" else []
    with pytest.raises(ValueError, match="do not fit") as caught:
        file.load_params(*model, state)
    lines = str(caught.value).splitlines()[1:]
    assert sum("missing" in x for x in lines) == 2
    assert sum("has the shape" in x for x in lines) == 2
    assert len(lines) == 4


class Listed(torch.nn.Module):
    """Parameters in a list, modules in a dict, a weight that is read beside its layer; names that
    Linen's modules have, and parameters of the constructor that are not the attribute's value.
    """

    def __init__(self, name=4, depth=3, outside=2):
        super().__init__()
        self.depth = depth - 1
        self.weights = torch.nn.ParameterList(torch.randn(name, name) for _ in range(depth))
        inner, outer = torch.nn.Linear(name, name), torch.nn.Linear(name, outside)
        self.parts = torch.nn.ModuleDict({"inner": inner, "outer": outer})
        self.mixed = torch.nn.Linear(name, outside)

    def forward(self, x):
        x = x * self.depth
        for weight in self.weights:
            x = x @ weight
        x = self.parts["outer"](self.parts["inner"](x)) @ self.mixed.weight
        return self.mixed(x)


def nested():
    """A Sequential that is the whole, with one in it that training changes."""
    inner = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    return torch.nn.Sequential(torch.nn.Linear(4, 4), inner, torch.nn.Linear(4, 2))


@pytest.mark.parametrize("make", [Listed, nested])
def test_names(make):
    torch.manual_seed(0)
    module, inputs = make().eval(), (drawn(3, 4),)
    file, model, variables = prepared(module, inputs)
    assert_same_values(module, lambda *x: model.apply(variables, *x), (drawn(5, 4),))
    assert_same_slopes(module, file, model, variables, inputs)
    initialised = model.init(jax.random.key(0), *arrays(inputs))
    assert jax.tree.structure(initialised) == jax.tree.structure(variables)


class Scoped(torch.nn.Module):
    """A submodule and a number with names that Linen's modules have themselves."""

    def __init__(self, path=3):
        super().__init__()
        self.scope, self.path = torch.nn.Linear(4, 4), path

    def forward(self, x):
        return self.scope(x) * self.path


def test_names_of_linen_s_own():
    module, inputs = torch.nn.Sequential(Scoped(), Scoped(2)).eval(), (drawn(3, 4),)
    _, model, variables = prepared(module, inputs)
    assert_same_values(module, lambda *x: model.apply(variables, *x), inputs)


def test_a_folder_of_weights(tmp_path):
    module = MLP().eval()
    file, _, variables = prepared(module, (drawn(5, 8),))
    save_file(module.state_dict(), tmp_path / "model.safetensors")
    jax.tree.map(np.testing.assert_array_equal, file.load_params(tmp_path), variables)


def test_another_size_takes_its_own_example():
    torch.manual_seed(0)
    module = MLP(width=12, depth=2).eval()
    file = loaded(anyjax.flax.source(MLP(), drawn(5, 8), style="linen"))
    model = file.MLP(width=12, depth=2)
    variables = file.load_params(weights(module), model, *arrays([drawn(3, 8)]))
    assert_same_values(module, lambda *x: model.apply(variables, *x), (drawn(5, 8),))


class Drawn(torch.nn.Module):
    """Parameters that their author draws in ways that Linen has and has not."""

    def __init__(self, width=64):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(width))
        self.narrow = torch.nn.Parameter(torch.empty(width, width))
        self.even = torch.nn.Parameter(torch.empty(width, width))
        torch.nn.init.trunc_normal_(self.narrow, std=0.5)
        torch.nn.init.xavier_uniform_(self.even)

    def forward(self, x):
        return x * self.gain @ self.narrow @ self.even


def test_parameters_are_drawn_as_by_their_author():
    file = loaded(anyjax.flax.source(Drawn(), drawn(3, 64), style="linen"))
    params = file.Drawn().init(jax.random.key(0), jnp.ones((3, 64)))["params"]
    assert (params["gain"] == 1).all()
    assert 0.4 < params["narrow"].std() < 0.5 and abs(params["narrow"]).max() <= 1
    assert abs(params["even"]).max() <= (6 / 128) ** 0.5


def test_what_a_reader_sees():
    text = anyjax.flax.source(MLP(), drawn(5, 8), style="linen")
    assert "nnx" not in text and "torch." not in text
    assert "x = self.drop(nn.relu(layer(x)), deterministic=deterministic)" in text
    assert "class MLP(nn.Module):\n    width: int = 16\n    depth: int = 3\n" in text
    assert "def __call__(self, x, deterministic=True):" in text
    assert max(map(len, text.splitlines())) <= 100
