"""Models on eight devices: what they compute, what is communicated, where weights lie."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from jax.sharding import AxisType, PartitionSpec

import anyjax
from anyjax.errors import WrongArguments
from anyjax.hf.generation.decode import programs
from anyjax.parallel import explain, shard
from anyjax.parallel._explain import compile_forward
from anyjax.parallel._shard import specs, weights
from anyjax.parallel.collectives import collective_calls
from anyjax.parallel.forward import Forward
from anyjax.train import TrainState, lora, make_step
from tests.parallel.architectures import CASES, IDS, build, cross_entropy
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=15)

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
WRITES = "CausalLM", "LMHead", "ConditionalGeneration"
GENERATES = [k for k, (cls, _, _) in CASES.items() if any(x in cls for x in WRITES)]


def mesh(kind=EXPLICIT, **axes):
    axes = axes or {"model": 8}
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(kind,) * len(axes))


def gradients(model, inputs):
    """Of the mean square of the logits, in a program of its own."""
    loss = lambda params: jnp.mean(model.apply(params, **inputs).logits ** 2)
    return jax.jit(jax.grad(loss))(model.params)


@pytest.mark.parametrize("name", CASES)
def test_architectures(name):
    """Outputs and gradients of one device; every weight of some size divided."""
    module, inputs = build(name)
    model = anyjax.from_torch(module)
    there = shard(model, mesh(AUTO if len(name) % 2 else EXPLICIT), "tp", **inputs)
    assert_close(there(**inputs).logits, model(**inputs).logits, reduction=512)
    grads = gradients(model, inputs)
    top = max(float(abs(x).max()) for x in grads.values())  # a key's bias has none but rounding
    for key, grad in gradients(there, inputs).items():
        scale = float(abs(grads[key]).max()) + 1e-3 * top
        assert_close(grad, grads[key], reduction=512, scale=scale)
    told = explain(model, mesh(), "tp", **inputs)
    whole = [r for r in told.rows if r.bytes == r.per_device]
    copied, total = sum(r.bytes for r in whole), sum(r.bytes for r in told.rows)
    given = sum(np.asarray(x).nbytes for x in inputs.values())
    state = sum(x.nbytes for x in model.state.values())
    assert told.arguments <= 1.1 / 8 * total + copied + given + state
    assert copied < 0.2 * total, [r.name for r in whole]


def test_llama_is_megatrons():
    """Columns beside rows: an all-reduce for each attention and MLP, one for the embedding."""
    module, inputs = build("llama")
    told = explain(anyjax.from_torch(module), mesh(), "tp", **inputs, use_cache=False)
    assert {k: v.calls for k, v in told.traffic.items()} == {"all-reduce": 5}
    specs = {r.name.removeprefix("model.layers.0."): r.spec for r in told.rows}
    columns = "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj"
    assert {specs[f"{k}.weight"] for k in columns} == {PartitionSpec("model")}
    rows = "self_attn.o_proj", "mlp.down_proj"
    assert {specs[f"{k}.weight"] for k in rows} == {PartitionSpec(None, "model")}
    assert specs["model.embed_tokens.weight"] == PartitionSpec("model")


def test_more_tokens_than_words():
    """The table of words is divided, however much of it one call reads."""
    model = anyjax.from_torch(build("gpt2")[0])
    vocabulary = model.params["transformer.wte.weight"].shape[0]
    specs = [
        {k: x.sharding.spec for k, x in shard(model, mesh(), "tp", input_ids=ids).params.items()}
        for ids in (np.ones((1, 4), np.int32), np.ones((vocabulary // 16, 16), np.int32))
    ]
    assert specs[0] == specs[1]
    assert specs[0]["transformer.wte.weight"] == PartitionSpec("model")


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_derived_is_declared(name, monkeypatch):
    """Without the plan of its class, a Llama gets the same one from its program."""
    module, inputs = build(name)
    model = anyjax.from_torch(module)
    declared = {r.name: r.spec for r in explain(model, mesh(), "tp", **inputs).rows}
    monkeypatch.setattr(type(model.source), "own_plan", lambda self: ({}, {}))
    assert {r.name: r.spec for r in explain(model, mesh(), "tp", **inputs).rows} == declared


@pytest.mark.parametrize("name", GENERATES)
def test_generation(name):
    module, inputs = build(name)
    model = anyjax.from_torch(module)
    there = shard(model, mesh(data=2, model=4), "tp", **inputs)
    given = {k: v for k, v in inputs.items() if "decoder" not in k}
    if "input_ids" in given:
        given["input_ids"] = given["input_ids"][:, :5]
    want = anyjax.generate(model, **given, max_new_tokens=6, min_new_tokens=6)
    got = anyjax.generate(there, **given, max_new_tokens=6, min_new_tokens=6)
    np.testing.assert_array_equal(got, want)


def test_prompts_lie_along_the_data_axis(monkeypatch):
    """Each device has its rows of text and cache."""
    model = shard(anyjax.from_torch(build("llama")[0]), mesh(data=2, model=4), "tp")
    made, prefill = [], programs.prefill

    def seen(*args):
        made.append(prefill(*args))
        return made[-1]

    monkeypatch.setattr(programs, "prefill", seen)
    anyjax.generate(model, IDS["input_ids"], max_new_tokens=4)
    _, _, carry = made[-1]
    keys = [x for x in jax.tree.leaves(carry["state"]) if x.ndim == 4]
    assert keys and all(x.sharding.shard_shape(x.shape)[:2] == (1, 2) for x in keys)


@pytest.mark.parametrize("name", CASES)
def test_no_weight_is_gathered(name):
    """Where a weight is divided, only what is computed from it is communicated."""
    module, inputs = build(name)
    model = anyjax.from_torch(module)
    found = specs(model, mesh(), "tp", (), inputs)
    compiled = compile_forward(Forward.of(model, (), inputs), mesh(), found)
    bare = lambda shape: sorted(n for n in shape if n > 1)
    whole = [bare(x.shape) for k, x in weights(model).items() if any(found[k]) and x.ndim > 1]
    made = [
        x
        for kind, arrays in collective_calls(compiled.as_text())
        if kind == "all-gather"
        for x in arrays
    ]
    assert not [x for _, x in made if bare(map(int, filter(None, x.split(",")))) in whole]


@pytest.mark.parametrize("name", CASES)
def test_every_kind_trains(name):
    """A step of SGD under "tp+fsdp": loss and weights of one device."""
    module, inputs = build(name)
    model = anyjax.from_torch(module).train()
    there = shard(model, mesh(data=2, model=4), "tp+fsdp", **inputs, rng=jax.random.key(0))
    loss = lambda model, batch: jnp.mean(model(**batch).logits ** 2)
    tx = optax.sgd(1e3)  # so that steps are no smaller than weights
    step = make_step(loss, tx, donate=False)
    states = [TrainState.create(x, tx, rng=jax.random.key(0)) for x in (model, there)]
    (one, want), (many, got) = (step(x, inputs) for x in states)
    assert_close(got["loss"], want["loss"], reduction=512)
    moved = {k: np.asarray(one.params[k] - x) for k, x in model.params.items()}
    top = max(float(abs(x).max()) for x in moved.values())
    for key, want in moved.items():
        rounded = 0.02 * float(abs(model.params[key]).max())  # two last places of a weight of 1
        scale = float(abs(want).max()) + 1e-3 * top + rounded
        got = np.asarray(many.params[key] - model.params[key])
        assert_close(got, want, reduction=512, scale=scale)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=str)
@pytest.mark.parametrize("plan", ["fsdp", "tp+fsdp"])
def test_training(plan, kind):
    """Three steps of Adam: the losses of one device; moments lie where their weights do."""
    module, inputs = build("llama")
    axes = {"data": 8} if plan == "fsdp" else {"data": 2, "model": 4}
    batch = {"input_ids": np.tile(inputs["input_ids"], (4, 1))}

    def loss(model, batch):
        logits = model(**batch, use_cache=False).logits[:, :-1]
        return cross_entropy(logits, batch["input_ids"][:, 1:]).mean()

    step, losses = make_step(loss, optax.adam(1e-2)), []
    model = anyjax.from_torch(module)
    for placed in (model, shard(model, mesh(kind, **axes), plan)):
        state = TrainState.create(placed, optax.adam(1e-2))
        for _ in range(3):
            state, metrics = step(state, batch)
            losses.append(float(metrics["loss"]))
    assert_close(np.float32(losses[3:]), np.float32(losses[:3]), reduction=2048)
    up = "model.layers.0.mlp.up_proj.weight"
    assert state.params[up].addressable_shards[0].data.size * 8 == state.params[up].size
    assert state.opt_state[0].mu[up].sharding.spec == state.params[up].sharding.spec


def test_adapters():
    """The matrices beside an adapter are state, and divided all the same."""
    module, inputs = build("gpt2")
    adapted = lora(anyjax.from_torch(module), rank=2, targets="c_fc|c_attn")
    there = shard(adapted, mesh(), "tp", **inputs)
    assert_close(there(**inputs).logits, adapted(**inputs).logits, reduction=512)
    matrix = there.state["transformer.h.0.mlp.c_fc.weight"]
    assert matrix.addressable_shards[0].data.size * 8 == matrix.size


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_quantized_weights(name):
    """The numbers are divided as the matrix would be."""
    module, inputs = build(name)
    targets = "proj|c_fc|c_attn"
    packed = anyjax.transforms.quantize(anyjax.from_torch(module), "int8", targets=targets)
    there = shard(packed, mesh(), "tp", **inputs)
    assert_close(there(**inputs).logits, packed(**inputs).logits, reduction=512)
    numbers = [x for k, x in there.state.items() if k.endswith(".int8")]
    assert numbers and all(x.addressable_shards[0].data.size * 8 == x.size for x in numbers)


def test_experts_have_an_axis():
    module, inputs = build("mixtral")
    model = anyjax.from_torch(module)
    there = shard(model, mesh(expert=4, model=2), "tp")
    spec = there.params["model.layers.0.mlp.experts.gate_up_proj"].sharding.spec
    assert spec[0] == "expert"
    assert_close(there(**inputs).logits, model(**inputs).logits, reduction=512)


def test_other_frameworks():
    """A program of TensorFlow and one of JAX, by what their products feed."""
    keras = pytest.importorskip("keras")
    layers = [keras.layers.Dense(64, activation="relu"), keras.layers.Dense(16)]
    network = keras.Sequential([keras.layers.Input((16,)), *layers])
    x = np.ones((4, 16), np.float32)
    model = anyjax.from_tensorflow(network, x)
    there = shard(model, mesh(), "tp", x)
    assert_close(there(x), model(x), reduction=64)
    assert sum(x.addressable_shards[0].data.size * 8 == x.size for x in there.params.values()) == 3


def attention_of_keras(keras):
    x = start = keras.layers.Input((8, 32))
    for _ in range(2):
        attended = keras.layers.MultiHeadAttention(8, 4)(keras.layers.LayerNormalization()(x), x)
        x = keras.layers.Add()([x, attended])
        hidden = keras.layers.Dense(64, "gelu")(keras.layers.LayerNormalization()(x))
        x = keras.layers.Add()([x, keras.layers.Dense(32)(hidden)])
    return keras.Model(start, x)


def test_a_transformer_of_keras():
    """By what its products feed: heads, and the features between the dense layers."""
    keras = pytest.importorskip("keras")
    x = np.random.default_rng(0).standard_normal((4, 8, 32), np.float32)
    model = anyjax.from_tensorflow(attention_of_keras(keras), x)
    there = shard(model, mesh(), "tp", x)
    assert_close(there(x), model(x), reduction=512)
    matrices = [v for v in there.params.values() if v.ndim > 1]
    assert all(v.addressable_shards[0].data.size * 8 == v.size for v in matrices)
    told = explain(model, mesh(), "tp", x)
    assert {k: v.calls for k, v in told.traffic.items()} == {"all-reduce": 2 * 2}


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=str)
def test_modules_of_flax(kind):
    """Modules around a model that lies on a mesh: variables lie there, too, and calls do."""
    nnx = pytest.importorskip("flax.nnx")
    module, inputs = build("llama")
    model = anyjax.from_torch(module)
    there = shard(model, mesh(kind, data=2, model=4), "tp+fsdp")
    want, up = model(**inputs).logits, "model.layers.0.mlp.up_proj.weight"
    with jax.set_mesh(there.params[up].sharding.mesh):
        wrapped = anyjax.flax.to_nnx(there)
        weight = wrapped.model.layers[0].mlp.up_proj.weight
        assert weight.get_value().sharding == there.params[up].sharding
        run = nnx.jit(lambda module, ids: module(input_ids=ids).logits)
        assert_close(run(wrapped, inputs["input_ids"]), want, reduction=512)
        grads = nnx.grad(lambda m, ids: (m(input_ids=ids).logits ** 2).mean())(
            wrapped, inputs["input_ids"]
        )
        assert grads["model"]["layers"][0]["mlp"]["up_proj"]["weight"].shape == weight.shape
        linen = anyjax.flax.to_linen(there, pretrained=True)
        variables = linen.init(jax.random.key(0), **inputs)
        assert_close(linen.apply(variables, **inputs).logits, want, reduction=512)


def test_the_mesh_of_set_mesh():
    """Inside of it a mesh is not said again."""
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
    model, x = anyjax.from_torch(torch.nn.Sequential(*layers)), np.ones((4, 8), np.float32)
    with pytest.raises(WrongArguments, match="a plan needs a mesh"):
        shard(model)
    with jax.set_mesh(mesh()):
        there = shard(model, None, "tp", x)
        told = explain(model, None, "tp", x)
        assert_close(there(x), model(x), reduction=16)
    assert told.mesh == {"model": 8}
    assert {k: x.sharding.spec for k, x in there.params.items()} == {
        r.name: r.spec for r in told.rows
    }


def test_rules_and_set_mesh():
    """Inside of ``jax.set_mesh``, too, with a batch over the other axis."""
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
    model = anyjax.from_torch(torch.nn.Sequential(*layers))
    there = mesh(data=2, model=4)
    rules = {r"0\.": PartitionSpec("model"), r"2\.weight": PartitionSpec(None, "model")}
    divided = shard(model, there, rules)
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    with jax.set_mesh(there):
        out = divided(jax.device_put(x, PartitionSpec("data")))
        assert jax.typeof(out).sharding.spec[0] == "data"
    assert_close(out, model(x), reduction=16)


WRONG = {
    "no plan 'pp'": ("pp", {"model": 8}),
    "no axis for tp": ("tp", {"rows": 2, "columns": 4}),
    "no axis for fsdp": ("tp+fsdp", {"model": 8}),
    "does not fit 1 arrays": ({"weight": PartitionSpec("model")}, {"model": 8}),
    "no call to derive": ("tp", {"model": 8}),
    "unterminated subpattern": ({"(weight": PartitionSpec("model")}, {"model": 8}),
    "'model' is no PartitionSpec": ({"weight": "model"}, {"model": 8}),
    "None is no PartitionSpec": ([("weight", None)], {"model": 8}),
    "neither a name nor rules": (8, {"model": 8}),
}


@pytest.mark.parametrize("said", WRONG)
def test_bad_plans(said):
    plan, axes = WRONG[said]
    model = anyjax.from_torch(torch.nn.Linear(4, 6))
    with pytest.raises(WrongArguments, match=said):
        shard(model, mesh(**axes), plan)


@pytest.mark.parametrize("there", ["tp", None, jax.devices(), mesh().abstract_mesh])
def test_no_mesh(there):
    model = anyjax.from_torch(torch.nn.Linear(8, 8))
    for call in (shard, explain):
        with pytest.raises(WrongArguments, match="needs a mesh of devices"):
            call(model, there, "fsdp")
