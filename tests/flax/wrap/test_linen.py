"""to_linen: collections, values, gradients, modes, keys, Linen's transformations."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import errors, nnx
from flax import linen as nn
from flax.training import train_state

import anyjax
from anyjax.errors import MissingRng, NoInitialiser, WrongArguments
from anyjax.flax import to_linen
from tests.flax.wrap.nets import IDS, Counting, Net, X, keras_net, net, torch_gradients
from tests.models.modules import Tied
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)

KEY = jax.random.key(0)
DROPOUT = {"dropout": jax.random.key(1)}
STATS = ["batch_stats"]
shapes = lambda tree: jax.tree.map(jnp.shape, tree)


def flat(tree):
    """Leaves by the names of torch."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {".".join(part.key for part in path): leaf for path, leaf in leaves}


def pretrained(source, **options):
    module = to_linen(source, pretrained=True, **options)
    return module, module.init(KEY, X, train=False)


def test_collections_have_the_sources_names():
    module, variables = pretrained(net())
    assert sorted(variables) == ["batch_stats", "params"]
    assert_close(flat(variables["params"]), dict(sorted(net().params.items())))
    assert_close(flat(variables["batch_stats"]), dict(sorted(net().state.items())))
    assert type(module).__name__ == "Net"


def test_values_and_gradients_are_torchs():
    source = Net(rate=0.0)
    module, variables = pretrained(source)
    stats = {"batch_stats": variables["batch_stats"]}

    def loss(params):
        out, written = module.apply({"params": params} | stats, X, mutable=STATS)
        return (out**2).sum(), (out, written)

    grads, (out, written) = jax.jit(jax.grad(loss, has_aux=True))(variables["params"])
    after = copy.deepcopy(source)
    assert_close(out, after(torch.from_numpy(X)), reduction=80)
    mean = written["batch_stats"]["features"]["1"]["running_mean"]
    assert_close(mean, after.features[1].running_mean, reduction=80)
    want = torch_gradients(source, X)
    scale = max(float(g.abs().max()) for g in want.values())
    assert_close(flat(grads), dict(sorted(want.items())), reduction=500, scale=scale)
    out = module.apply({**variables, **written}, X, train=False)
    assert_close(out, after.eval()(torch.from_numpy(X)), reduction=80)


def test_what_may_not_be_written_is_flaxs_error():
    module, variables = pretrained(net())
    with pytest.raises(errors.ModifyScopeVariableError, match=r'in "/features/1" because'):
        module.apply(variables, X, rngs=DROPOUT)
    _, written = module.apply(variables, X, rngs=DROPOUT, mutable=STATS)
    assert set(written) == {"batch_stats"}
    assert_close(module.apply(variables, X, train=False), net().eval()(X), reduction=80)
    unchanged = module.apply(variables, X, train=False, mutable=STATS)[1]
    assert_close(unchanged, {"batch_stats": variables["batch_stats"]})


def test_the_mode_is_an_attribute_or_an_argument():
    module, variables = pretrained(net(), train=False)
    quiet = module.apply(variables, X)
    assert_close(quiet, net().eval()(X), reduction=80)
    out, _ = module.apply(variables, X, train=True, mutable=STATS, rngs=DROPOUT)
    assert not np.array_equal(out, quiet)
    assert_close(pretrained(net().eval())[0].apply(variables, X), quiet)

    class Own(torch.nn.Module):
        def forward(self, x, train):
            return x * train

    assert_close(to_linen(Own()).apply({}, X, train=3), X * 3)


def test_dropout_takes_its_key():
    module, variables = pretrained(net())
    run = lambda seed: module.apply(
        variables, X, mutable=STATS, rngs={"dropout": jax.random.key(seed)}
    )[0]
    assert_close(run(0), run(0))
    assert not np.array_equal(run(0), run(1))
    with pytest.raises(MissingRng, match=r'rngs=\{"dropout": key\}'):
        module.apply(variables, X, mutable=STATS)
    assert module.init(KEY, X)["params"]  # which gives one key for all


class AsField(nn.Module):
    backbone: nn.Module

    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(2)(self.backbone(x, train=train))


class InSetup(nn.Module):
    def setup(self):
        self.backbone, self.head = to_linen(net()), nn.Dense(2)

    def __call__(self, x, train=False):
        return self.head(self.backbone(x, train=train))


class InCompact(nn.Module):
    @nn.compact
    def __call__(self, x, train=False):
        return nn.Dense(2)(to_linen(net(), name="backbone")(x, train=train))


@pytest.mark.parametrize("make", [lambda: AsField(to_linen(net())), InSetup, InCompact])
def test_a_part_of_a_module(make):
    whole = make()
    variables = whole.init(KEY, X)
    assert shapes(variables["params"]["backbone"]["head"]) == {"weight": (2, 4), "bias": (2,)}
    _, written = whole.apply(variables, X, True, mutable=STATS, rngs=DROPOUT)
    assert int(written["batch_stats"]["backbone"]["features"]["1"]["num_batches_tracked"]) == 1
    bound = whole.bind(variables)
    assert_close(bound(X), whole.apply(variables, X))
    assert "backbone/features/1 │ BatchNorm2d" in nn.tabulate(whole, KEY, console_kwargs=PLAIN)(X)


PLAIN = {"width": 160, "force_terminal": False}


def test_bind_reaches_a_submodule():
    whole = AsField(to_linen(net()))
    variables = whole.init(KEY, X)
    bound = whole.bind(variables).backbone
    own = {name: tree["backbone"] for name, tree in variables.items()}
    assert_close(bound(X, train=False), to_linen(net()).apply(own, X, train=False))
    assert_close(dict(bound.variables["params"]), own["params"])
    module, unbound = whole.bind(variables).unbind()
    assert_close(module.apply(unbound, X), whole.apply(variables, X))


def test_names_of_class_where_none_is_given():
    class Whole(nn.Module):
        @nn.compact
        def __call__(self, x):
            return to_linen(net())(x, train=False)

    assert list(Whole().init(KEY, X)["params"]) == ["Net_0"]


def test_a_train_state():
    import optax

    class TrainState(train_state.TrainState):
        batch_stats: dict

    whole = AsField(to_linen(net()))
    variables = whole.init(KEY, X)
    state = TrainState.create(apply_fn=whole.apply, tx=optax.adam(1e-2), **variables)

    @jax.jit
    def step(state, x):
        def loss(params):
            given = {"params": params, "batch_stats": state.batch_stats}
            out, written = state.apply_fn(given, x, True, mutable=STATS, rngs=DROPOUT)
            return (out**2).sum(), written["batch_stats"]

        (value, stats), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads, batch_stats=stats), value

    losses = []
    for _ in range(4):
        state, value = step(state, X)
        losses.append(float(value))
    assert losses[-1] < losses[0]
    assert int(state.batch_stats["backbone"]["features"]["1"]["num_batches_tracked"]) == 4


def test_masks_by_path_choose_what_trains():
    import optax

    module, variables = pretrained(Net(rate=0.0))
    params, stats = variables["params"], variables["batch_stats"]
    labels = jax.tree_util.tree_map_with_path(
        lambda path, _: "train" if path[0].key == "head" else "freeze", params
    )
    tx = optax.multi_transform({"train": optax.sgd(0.1), "freeze": optax.set_to_zero()}, labels)
    apply = lambda p: module.apply({"params": p, "batch_stats": stats}, X, train=False)
    grads = jax.grad(lambda p: (apply(p) ** 2).sum())(params)
    updates, _ = tx.update(grads, tx.init(params), params)
    changed = {name for name, update in flat(updates).items() if np.any(update)}
    assert changed == {"head.weight", "head.bias"}


def test_init_makes_fresh_weights_from_the_key():
    module = to_linen(net())
    init = lambda seed: module.init(jax.random.key(seed), X)
    one = init(0)
    assert_close(one, init(0))
    assert not np.array_equal(one["params"]["head"]["weight"], init(1)["params"]["head"]["weight"])
    assert np.array_equal(one["params"]["features"]["1"]["weight"], np.ones(4))
    assert_close(jax.jit(module.init)(jax.random.key(0), X), one)
    assert shapes(jax.eval_shape(module.init, KEY, X)) == shapes(one)
    assert shapes(jax.eval_shape(module.init, KEY, X)) == shapes(module.lazy_init(KEY, X))


def test_an_ensemble_and_rematerialisation():
    class Ensemble(nn.Module):
        @nn.compact
        def __call__(self, x):
            one = lambda _, x: nn.remat(lambda m, x: m(x))(to_linen(net(), train=False), x)
            axes = {"params": 0, "batch_stats": 0}
            each = nn.vmap(one, axes, {"params": True}, in_axes=None, axis_size=3)
            return each(self, x)

    variables = Ensemble().init(KEY, X)
    weights = variables["params"]["Net_0"]["head"]["weight"]
    assert weights.shape == (3, 2, 4)
    assert not np.array_equal(weights[0], weights[1])
    assert Ensemble().apply(variables, X).shape == (3, 5, 2)


def test_tied_weights_stand_once():
    source = Tied()
    module = to_linen(source, pretrained=True)
    variables = module.init(KEY, IDS)
    assert shapes(variables) == {"params": {"embed": {"weight": (10, 4)}}}
    got = jax.grad(lambda variables: (module.apply(variables, IDS) ** 2).sum())(variables)
    assert_close(flat(got["params"]), torch_gradients(source, IDS), reduction=64)


def test_outputs_have_the_sources_class():
    model = anyjax.from_pretrained("examples/tiny-llama")
    module = to_linen(model, pretrained=True)
    variables = module.init(KEY, IDS)
    out = jax.jit(module.apply)(variables, IDS)
    assert type(out).__name__ == "CausalLMOutputWithPast"
    assert_close(out.logits, model(IDS).logits, reduction=512)
    params = {"params": variables["params"]}  # inv_freq is the model's
    assert_close(module.apply(params, IDS).logits, out.logits, reduction=512)
    table = module.tabulate(KEY, IDS, depth=2, console_kwargs=PLAIN)
    assert ": DynamicCache" in table
    assert "model/embed_tokens │ Embedding" in table
    assert len(repr(module)) < 500


def test_writes_of_the_forward_pass_are_buffers():
    module = to_linen(Counting())
    variables = module.init(KEY, 2.0)
    assert shapes(variables) == {"buffers": {"calls": ()}}
    assert float(module.apply({}, 2.0, mutable=["buffers"])[0]) == 2.0
    for want in (2.0, 8.0, 18.0):
        out, variables = module.apply(variables, 2.0, mutable=["buffers"])
        assert float(out) == want
    assert sorted(variables["buffers"]) == ["calls", "total"]
    with pytest.raises(errors.ModifyScopeVariableError, match='collection "buffers"'):
        module.apply(variables, 2.0)


def test_a_keras_model():
    source, x = keras_net()
    module = to_linen(source, pretrained=True)
    variables = module.init(KEY, x)
    assert sorted(variables) == ["batch_stats", "buffers", "params"]
    assert_close(module.apply(variables, x), np.asarray(source(x)), reduction=8)
    _, written = module.apply(variables, x, train=True, mutable=STATS, rngs=DROPOUT)
    assert np.any(written["batch_stats"]["sequential"]["batch_normalization"]["moving_mean"])
    fresh = lambda seed: to_linen(source).init(jax.random.key(seed), x)["params"]
    assert_close(fresh(0), fresh(0))
    kernel = lambda seed: fresh(seed)["sequential"]["dense"]["kernel"]
    assert not np.array_equal(kernel(0), kernel(1))


def test_a_stablehlo_artifact():
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    exported = jax.export.export(jax.jit(jnp.sin), platforms=["cpu"])(shape)
    x = np.ones(3, np.float32)
    module = to_linen(exported)
    assert module.init(KEY, x) == {}
    assert_close(module.apply({}, x, train=True), np.sin(x))


def test_wrong_variables_are_flaxs_errors():
    module, variables = pretrained(net())
    with pytest.raises(errors.ScopeCollectionNotFound):
        module.apply({"params": variables["params"]}, X, train=False)
    wrong = {**variables, "params": jax.tree.map(lambda x: x[:1], variables["params"])}
    with pytest.raises(errors.ScopeParamShapeError):
        module.apply(wrong, X, train=False)


@pytest.mark.parametrize("source", [3, None, torch.nn.Linear, {"w": 1}, len, nn.Dense(3)])
def test_what_is_no_model(source):
    with pytest.raises(WrongArguments, match="to_linen takes a model"):
        to_linen(source)


def test_bridge_to_nnx():
    module = nnx.bridge.ToNNX(to_linen(net()), rngs=nnx.Rngs(params=0, dropout=1)).lazy_init(X)
    assert module(X, train=False).shape == (5, 2)
    assert isinstance(module.features["1"]["running_mean"], nnx.BatchStat)
    module(X, train=True, mutable=STATS)
    assert int(module.features["1"]["num_batches_tracked"][...]) == 1


class CalledParams(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.params = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x * self.params


def test_a_parameter_called_params():
    x, key = np.ones((3, 2), np.float32), jax.random.key(0)
    with pytest.raises(WrongArguments, match="called params"):
        anyjax.flax.to_linen(CalledParams()).init(key, x)
    inside = anyjax.flax.to_linen(torch.nn.Sequential(CalledParams()))
    with pytest.warns(NoInitialiser, match="0.params"):
        variables = inside.init(key, x)
    np.testing.assert_array_equal(inside.apply(variables, x), x)
