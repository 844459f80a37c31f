"""Models on eight devices: what they compute, what is communicated, where weights lie."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from jax.sharding import AxisType, PartitionSpec

import tojax
from tests.parallel.architectures import CASES, IDS, build
from tests.tolerance import assert_close
from tojax.errors import WrongArguments
from tojax.parallel import explain, shard
from tojax.train import TrainState, lora, make_step

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
GENERATES = [k for k, (cls, _, given) in CASES.items() if "CausalLM" in cls and given is IDS]


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
    model = tojax.from_torch(module)
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
    told = explain(tojax.from_torch(module), mesh(), "tp", **inputs, use_cache=False)
    assert {k: v.calls for k, v in told.traffic.items()} == {"all-reduce": 5}
    specs = {r.name.removeprefix("model.layers.0."): r.spec for r in told.rows}
    columns = "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj"
    assert {specs[f"{k}.weight"] for k in columns} == {PartitionSpec("model")}
    rows = "self_attn.o_proj", "mlp.down_proj"
    assert {specs[f"{k}.weight"] for k in rows} == {PartitionSpec(None, "model")}
    assert specs["model.embed_tokens.weight"] == PartitionSpec("model")


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_derived_is_declared(name, monkeypatch):
    """Without the plan of its class, a Llama gets the same one from its program."""
    module, inputs = build(name)
    model = tojax.from_torch(module)
    declared = {r.name: r.spec for r in explain(model, mesh(), "tp", **inputs).rows}
    monkeypatch.setattr(type(model.source), "own_plan", lambda self: ({}, {}))
    assert {r.name: r.spec for r in explain(model, mesh(), "tp", **inputs).rows} == declared


@pytest.mark.parametrize("name", GENERATES)
def test_generation(name):
    module, inputs = build(name)
    model = tojax.from_torch(module)
    there = shard(model, mesh(), "tp", **inputs)
    ids = inputs["input_ids"][:, :5]
    want = tojax.generate(model, ids, max_new_tokens=6)
    np.testing.assert_array_equal(tojax.generate(there, ids, max_new_tokens=6), want)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT], ids=str)
@pytest.mark.parametrize("plan", ["fsdp", "tp+fsdp"])
def test_training(plan, kind):
    """Three steps of Adam: the losses of one device; moments lie where their weights do."""
    module, inputs = build("llama")
    axes = {"data": 8} if plan == "fsdp" else {"data": 2, "model": 4}
    batch = {"input_ids": np.tile(inputs["input_ids"], (4, 1))}

    def loss(model, batch):
        logits = model(**batch, use_cache=False).logits[:, :-1]
        told = optax.softmax_cross_entropy_with_integer_labels
        return told(logits, batch["input_ids"][:, 1:]).mean()

    step, losses = make_step(loss, optax.adam(1e-2)), []
    model = tojax.from_torch(module)
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
    adapted = lora(tojax.from_torch(module), rank=2, targets="c_fc|c_attn")
    there = shard(adapted, mesh(), "tp", **inputs)
    assert_close(there(**inputs).logits, adapted(**inputs).logits, reduction=512)
    matrix = there.state["transformer.h.0.mlp.c_fc.weight"]
    assert matrix.addressable_shards[0].data.size * 8 == matrix.size


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_quantized_weights(name):
    """The numbers are divided as the matrix would be."""
    module, inputs = build(name)
    targets = "proj|c_fc|c_attn"
    packed = tojax.transforms.quantize(tojax.from_torch(module), "int8", targets=targets)
    there = shard(packed, mesh(), "tp", **inputs)
    assert_close(there(**inputs).logits, packed(**inputs).logits, reduction=512)
    numbers = [x for k, x in there.state.items() if k.endswith(".int8")]
    assert numbers and all(x.addressable_shards[0].data.size * 8 == x.size for x in numbers)


def test_experts_have_an_axis():
    module, inputs = build("mixtral")
    model = tojax.from_torch(module)
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
    model = tojax.from_tensorflow(network, x)
    there = shard(model, mesh(), "tp", x)
    assert_close(there(x), model(x), reduction=64)
    assert sum(x.addressable_shards[0].data.size * 8 == x.size for x in there.params.values()) == 3


def test_rules_and_set_mesh():
    """Inside of ``jax.set_mesh``, too, with a batch over the other axis."""
    layers = torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)
    model = tojax.from_torch(torch.nn.Sequential(*layers))
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
}


@pytest.mark.parametrize("said", WRONG)
def test_bad_plans(said):
    plan, axes = WRONG[said]
    model = tojax.from_torch(torch.nn.Linear(4, 6))
    with pytest.raises(WrongArguments, match=said):
        shard(model, mesh(**axes), plan)
