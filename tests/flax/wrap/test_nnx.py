"""to_nnx: names, values, gradients, modes, streams, nnx's transformations."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import anyjax
from anyjax.errors import MissingRng, Unsupported, WrongArguments
from anyjax.flax import Buffer, to_nnx
from tests.flax.wrap.nets import IDS, Counting, Net, X, gpt2, keras_net, net, torch_gradients
from tests.models.modules import Tied
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)

RNGS = lambda: nnx.Rngs(dropout=0)
square = lambda module, x: (module(x) ** 2).sum()
tracked = lambda module: int(module.features[1].num_batches_tracked[...])


def by_source_name(state):
    """Leaves of a state by the names of torch."""
    return {".".join(map(str, path)): x.get_value() for path, x in nnx.to_flat_state(state)}


def test_variables_stand_under_the_sources_names():
    module, model = to_nnx(net()), net()
    params = by_source_name(nnx.state(module, nnx.Param))
    assert_close(params, {k: model.params[k] for k in params})
    assert set(params) == set(model.params)
    assert set(by_source_name(nnx.state(module, nnx.BatchStat))) == set(model.state)
    assert module.features[0].weight.shape == module["features"][0]["weight"].shape == (4, 3, 3, 3)
    assert len(module.features) == 4
    assert type(module.features[2]).__name__ == "ReLU"
    assert type(module).__name__ == "Net"


def test_numbered_children_are_a_list():
    layer = lambda: torch.nn.Linear(2, 2)
    named = torch.nn.ModuleDict({"7": layer(), "900000": layer()})
    whole = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sequential(layer(), torch.nn.ReLU()))
    module = to_nnx(whole)
    assert [type(part).__name__ for part in module] == ["ReLU", "List"]
    assert [type(part).__name__ for part in module[1]] == ["Linear", "ReLU"]
    named.forward = named["7"].forward
    assert to_nnx(named)[900000].weight.shape == (2, 2)
    with pytest.raises(KeyError):
        module["head"]


def test_values_and_gradients_are_torchs():
    source = Net(rate=0.0)
    module = to_nnx(source)
    want = torch_gradients(copy.deepcopy(source), X)
    got = by_source_name(nnx.grad(square)(module, X))
    # the gradient of a bias before a normalisation is zero but for rounding
    assert_close(got, want, reduction=500, scale=max(float(g.abs().max()) for g in want.values()))
    after = copy.deepcopy(source)
    y = after(torch.from_numpy(X))
    assert tracked(module) == 1
    assert_close(module.features[1].running_mean[...], after.features[1].running_mean, reduction=80)
    assert_close(module(X), y, reduction=80)
    module.eval()
    twice = (after(torch.from_numpy(X)), after.eval()(torch.from_numpy(X)))[1]
    assert_close(module(X), twice, reduction=80)
    assert tracked(module) == 2


class Classifier(nnx.Module):
    def __init__(self, rngs):
        self.backbone = to_nnx(net(), rngs=rngs, pretrained=True)
        self.head = nnx.Linear(2, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(self.backbone(x))


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "tree"])
def test_a_part_of_a_module_trains(graph):
    import optax

    whole = Classifier(nnx.Rngs(0))
    optimizer = nnx.Optimizer(whole, optax.adam(1e-2), wrt=nnx.Param)
    before = whole.backbone.head.weight[...]

    @nnx.jit(graph=graph)
    def step(whole, optimizer, x):
        graphdef, params, rest = nnx.split(whole, nnx.Param, ..., graph=graph)
        loss = lambda params, rest: square(nnx.merge(graphdef, params, rest), x)
        if graph:
            value, grads = nnx.value_and_grad(square)(whole, x)
        else:  # what is differentiated in tree mode holds floats alone
            value, grads = nnx.value_and_grad(loss, graph=False)(params, rest)
            nnx.update(whole, rest)
        optimizer.update(whole, grads)
        return value

    losses = [float(step(whole, optimizer, X)) for _ in range(4)]
    assert losses[-1] < losses[0]
    assert tracked(whole.backbone) == 4
    assert int(whole.backbone.rngs.count[...]) == 4
    assert not np.array_equal(before, whole.backbone.head.weight[...])


def test_filters_by_path_choose_what_trains():
    import optax

    module = to_nnx(Net(rate=0.0))
    head = nnx.All(nnx.Param, nnx.PathContains("head"))
    optimizer = nnx.Optimizer(module, optax.sgd(0.1), wrt=head)
    before = by_source_name(nnx.state(module, nnx.Param))
    grads = nnx.grad(nnx.remat(square), argnums=nnx.DiffState(0, head))(module, X)
    optimizer.update(module, grads)
    after = by_source_name(nnx.state(module, nnx.Param))
    changed = {name for name in after if not np.array_equal(before[name], after[name])}
    assert changed == {"head.weight", "head.bias"}


def test_the_mode_follows_the_module_around_it():
    whole = Classifier(nnx.Rngs(0))
    assert whole.backbone.deterministic is whole.backbone.use_running_average is False
    whole.eval()
    first = whole.backbone(X)
    assert_close(first, net().eval()(X), reduction=80)
    assert_close(whole.backbone(X), first)
    assert tracked(whole.backbone) == int(whole.backbone.rngs.count[...]) == 0
    whole.train()
    whole(X)
    assert tracked(whole.backbone) == int(whole.backbone.rngs.count[...]) == 1
    seen = nnx.view(whole, deterministic=True, use_running_average=True)
    assert seen.backbone.deterministic
    assert not whole.backbone.deterministic
    assert "statistics of batches are the stored ones" in nnx.view_info(whole)


def test_dropout_and_statistics_have_modes_of_their_own():
    module = to_nnx(net(), rngs=RNGS())
    module.set_attributes(use_running_average=True)
    assert not np.array_equal(module(X), module(X))
    assert tracked(module) == 0
    module.set_attributes(use_running_average=False, deterministic=True)
    assert_close(module(X), module(X))
    assert tracked(module) == 2


def test_each_call_draws_from_the_stream():
    one, other = (to_nnx(net(), rngs=RNGS()) for _ in range(2))
    first = one(X)
    assert_close(first, other(X))
    assert not np.array_equal(first, one(X))
    assert_close(one(X, rngs=jax.random.key(5)), other(X, rngs=jax.random.key(5)))
    with pytest.raises(MissingRng, match=r"rngs=nnx\.Rngs\(dropout=0\)"):
        to_nnx(net())(X)
    with pytest.raises(WrongArguments, match="rngs is a int"):
        to_nnx(net(), rngs=3)


def test_a_stream_is_asked_in_evaluation_where_the_forward_pass_draws():
    module = to_nnx(anyjax.from_torch(lambda x: x + torch.randn(3)), rngs=RNGS())
    module.eval()
    assert not np.array_equal(module(X[0, 0, 0, :3]), module(X[0, 0, 0, :3]))
    assert int(module.rngs.count[...]) == 2


def test_split_merge_and_copies():
    module = to_nnx(net(), rngs=RNGS())
    graphdef, params, rest = nnx.split(module, nnx.Param, ...)
    again = nnx.merge(graphdef, params, rest)
    assert nnx.graphdef(again) == graphdef
    assert hash(nnx.graphdef(again)) == hash(graphdef)
    other = copy.deepcopy(module)
    assert_close(again(X), other(X))
    assert tracked(other) == 1

    @jax.jit
    def pure(params, rest):
        inside = nnx.merge(graphdef, params, rest)
        return inside(X), nnx.state(inside, nnx.BatchStat)

    out, stats = pure(*nnx.split(to_nnx(net(), rngs=RNGS()), nnx.Param, ...)[1:])
    assert_close(out, to_nnx(net(), rngs=RNGS())(X), reduction=80)
    assert int(stats["features"][1]["num_batches_tracked"].get_value()) == 1


def test_vmap_makes_and_calls_an_ensemble():
    make = nnx.split_rngs(splits=3)(nnx.vmap(lambda rngs: to_nnx(net(), rngs=rngs)))
    ensemble = make(nnx.Rngs(0))
    weights = ensemble.head.weight[...]
    assert weights.shape == (3, 2, 4)
    assert not np.array_equal(weights[0], weights[1])
    out = nnx.vmap(lambda module, x: module(x), in_axes=(0, None))(ensemble, X)
    assert out.shape == (3, 5, 2)
    assert tracked_each(ensemble) == [1, 1, 1]


def tracked_each(ensemble):
    return ensemble.features[1].num_batches_tracked[...].tolist()


def test_fresh_weights_come_from_the_key():
    make = lambda seed: to_nnx(net(), rngs=nnx.Rngs(seed))
    params = lambda module: by_source_name(nnx.state(module, nnx.Param))
    one, same, other = params(make(0)), params(make(0)), params(make(1))
    assert_close(one, same)
    assert not np.array_equal(one["head.weight"], other["head.weight"])
    assert np.array_equal(one["features.1.weight"], np.ones(4))
    assert np.abs(one["head.weight"]).max() <= 0.5  # torch's bound: 1 / sqrt(4)
    assert_close(params(nnx.jit(lambda: make(0))()), one)
    shapes = nnx.eval_shape(lambda: make(0))
    assert shapes.head.weight.get_value().shape == (2, 4)
    with pytest.raises(WrongArguments, match="without a key"):
        to_nnx(net(), pretrained=False)
    kept = params(to_nnx(net(), rngs=nnx.Rngs(0), pretrained=True))
    assert_close(kept, {k: net().params[k] for k in kept})


def test_tied_weights_stand_once():
    source = Tied()
    module = to_nnx(source)
    assert "head" not in vars(module)
    got = by_source_name(nnx.grad(square)(module, IDS))
    assert_close(got, torch_gradients(source, IDS), reduction=64)
    module = to_nnx(gpt2())
    assert "lm_head" not in vars(module)
    assert_close(module(IDS).logits, gpt2()(IDS).logits)


def test_outputs_have_the_sources_class():
    import transformers

    model = anyjax.from_pretrained("examples/tiny-llama")
    module = to_nnx(model)
    assert module.model.layers[0].self_attn.q_proj.weight.shape == (128, 128)
    out = nnx.jit(lambda module, ids: module(input_ids=ids))(module, IDS)
    assert isinstance(out, transformers.modeling_outputs.CausalLMOutputWithPast)
    assert isinstance(out.to_tuple()[1], transformers.DynamicCache)
    assert_close(out.logits, model(IDS).logits, reduction=512)
    table = nnx.tabulate(module, IDS, depth=2, console_kwargs=PLAIN)
    assert ": DynamicCache" in table
    assert "model/embed_tokens" in table


PLAIN = {"width": 160, "force_terminal": False}


def test_tables_and_repr_show_the_structure():
    module = to_nnx(net(), rngs=RNGS())
    table = nnx.tabulate(module, X, console_kwargs=PLAIN)
    for words in ("features/1 │ BatchNorm2d", "running_var: float32[4]", "130 (520 B)"):
        assert words in table
    assert tracked(module) == 0
    assert "features=List" in repr(module)
    assert len(repr(to_nnx(gpt2()))) < 20_000


def test_writes_of_the_forward_pass_are_buffers():
    module = to_nnx(Counting())
    assert isinstance(module.calls, Buffer)
    assert [float(module(2.0)), float(module(2.0))] == [2.0, 8.0]
    assert float(nnx.jit(lambda module, x: module(x))(module, 2.0)) == 18.0
    assert isinstance(module.total, Buffer)  # the source's own state, which a call makes
    assert "last" not in vars(module)  # no later call looks at it
    assert float(jax.jit(lambda module: module(2.0))(module)) == 32.0


def test_names_that_nnx_has_itself():
    source = torch.nn.Module()
    source.rngs, source.sow = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    source.forward = lambda x: source.sow(source.rngs(x))
    module = to_nnx(source)
    assert module.rngs_.weight.shape == module["sow"].weight.shape == (2, 2)
    assert_close(module(X[0, 0, :, :2]), anyjax.from_torch(source)(X[0, 0, :, :2]))


def test_a_keras_model():
    source, x = keras_net()
    module = to_nnx(source, rngs=nnx.Rngs(0), pretrained=True)
    module.eval()
    assert_close(module(x), np.asarray(source(x)), reduction=8)
    module.train()
    stats = module.sequential.batch_normalization
    assert isinstance(stats.moving_mean, nnx.BatchStat)
    assert not np.array_equal(module(x), module(x))
    assert np.any(stats.moving_mean[...])
    module.eval()
    loss = lambda params, x: (model.apply(params, x, state=state) ** 2).sum()
    model = anyjax.from_tensorflow(source)
    state = model.state | {
        f"sequential/batch_normalization/{k}": getattr(stats, k)[...]
        for k in ("moving_mean", "moving_variance")
    }
    got = nnx.grad(square)(module, x)["sequential"]["dense"]["kernel"].get_value()
    assert_close(got, jax.grad(loss)(model.params, x)["sequential/dense/kernel"], reduction=32)


def test_a_stablehlo_artifact():
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    exported = jax.export.export(jax.jit(jnp.sin), platforms=["cpu"])(shape)
    module = to_nnx(exported, rngs=nnx.Rngs(0))
    module.train()  # it has no modes
    x = np.ones(3, np.float32)
    assert_close(module(x), np.sin(x))
    assert_close(nnx.grad(lambda x: module(x).sum())(x), np.cos(x))


def test_missing_and_wrong_variables_are_explained():
    module = to_nnx(net())
    module.head = nnx.Linear(4, 2, rngs=nnx.Rngs(0))
    with pytest.raises(WrongArguments, match=r"head\.weight is missing"):
        module(X)
    with pytest.raises(WrongArguments, match="unexpected"):
        to_nnx(net())(X, no_such=1)
    with pytest.raises(Unsupported, match="a Conv2d of a converted model does not run alone"):
        module.features[0](X)


@pytest.mark.parametrize(
    "source", [3, None, torch.nn.Linear, {"w": 1}, len, nnx.Rngs(0), Buffer(1)]
)
def test_what_is_no_model(source):
    with pytest.raises(WrongArguments, match="to_nnx takes a model"):
        to_nnx(source)


def test_bridge_to_linen():
    module = nnx.bridge.to_linen(to_nnx, net())
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = module.init(keys, X)
    assert variables["params"]["head"]["weight"].shape == (2, 4)
    out, written = module.apply(variables, X, rngs=keys, mutable=["batch_stats"])
    assert out.shape == (5, 2)
    assert int(written["batch_stats"]["features"][1]["num_batches_tracked"]) == 1


def test_orbax_saves_and_restores(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    module = to_nnx(net())
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "net", nnx.state(module))
        checkpointer.wait_until_finished()
        empty = jax.tree.map(jnp.zeros_like, nnx.state(module))
        nnx.update(module, checkpointer.restore(tmp_path / "net", empty))
    assert_close(module.head.weight[...], net().params["head.weight"])
