"""Texts whose length is divided over devices: the numbers of one device, what is communicated."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import anyjax
from anyjax.errors import WrongArguments
from anyjax.parallel import explain, place, shard
from anyjax.train import TrainState, make_step
from tests.parallel.architectures import CASES, IDS, build, cross_entropy
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=2)

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
TEXT = [k for k, (_, _, given) in CASES.items() if given is IDS]
SAMPLE = {"llama", "grouped heads", EXPLICIT}  # the others are in `make conformance`


def cases(*names):
    more = lambda k: [] if k in SAMPLE else [pytest.mark.conformance]
    return [pytest.param(k, marks=more(k), id=str(k)) for k in names]


def mesh(kind=EXPLICIT, **axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(kind,) * len(axes))


def loss(model, batch):
    """JAX slices no axis that is divided on an explicit mesh, so labels are shifted."""
    losses = cross_entropy(model(input_ids=batch["input_ids"]).logits, batch["labels"])
    return (losses * (batch["labels"] != 0)).mean()


def batch_of(ids):
    shifted = np.pad(ids[:, 1:], ((0, 0), (0, 1)))
    return {"input_ids": ids, "labels": shifted}


@pytest.mark.parametrize("name", cases(*TEXT))
def test_architectures(name):
    """Outputs and gradients; causal masks, positions and rotary embeddings are in them."""
    module, inputs = build(name)
    model, there = (
        anyjax.from_torch(module),
        mesh(AUTO if len(name) % 2 else EXPLICIT, data=2, sp=4),
    )
    inputs = inputs | {"attention_mask": np.ones((2, 16), np.int32)}
    inputs["attention_mask"][1, :3] = 0

    def run(model, inputs):
        value = lambda p: jnp.mean(model.apply(p, **inputs).logits ** 2)
        return model(**inputs).logits, jax.jit(jax.grad(value))(model.params)

    logits, grads = run(model, inputs)
    divided = shard(model, there, "sequence")
    got, found = run(divided, place(inputs, there))
    assert got.sharding.spec[:2] == ("data", "sp") or "Sequence" in type(module).__name__
    assert_close(got, logits, reduction=512)
    top = max(float(abs(x).max()) for x in grads.values())  # a key's bias has none but rounding
    for key, grad in found.items():
        scale = float(abs(grads[key]).max()) + 1e-3 * top
        assert_close(grad, grads[key], reduction=512, scale=scale)


@pytest.mark.parametrize("name", ["llama", "grouped heads"])
def test_keys_and_values_are_gathered(name):
    """Once for each attention, and nothing else is communicated."""
    module, _ = build(name)
    ids, there = np.ones((1, 64), np.int32), mesh(sequence=8)
    told = explain(anyjax.from_torch(module), there, "sequence", ids, use_cache=False)
    config = module.config
    size = 64 * config.num_key_value_heads * config.hidden_size // config.num_attention_heads * 4
    assert told.traffic == {"all-gather": (2 * 2, 2 * 2 * size)}


def test_memory_is_divided():
    """Of a long text each device holds its part of all activations."""
    module, _ = build("llama")
    model, ids = anyjax.from_torch(module), np.ones((1, 256), np.int32)
    one, many = (explain(model, mesh(sequence=n), "sequence", ids, use_cache=False) for n in (1, 8))
    assert many.temporaries < one.temporaries / 6


@pytest.mark.parametrize("kind", cases(AUTO, EXPLICIT))
def test_training(kind):
    """Beside tensor and data parallelism: the losses of one device."""
    module, inputs = build("grouped heads")
    model, step, losses = anyjax.from_torch(module), make_step(loss, optax.adam(1e-2)), []
    there = shard(model, mesh(kind, data=2, sequence=2, model=2), "tp+fsdp+sequence")
    for placed in (model, there):
        state = TrainState.create(placed, optax.adam(1e-2))
        for _ in range(3):
            state, metrics = step(state, batch_of(np.tile(inputs["input_ids"], (2, 1))))
            losses.append(float(metrics["loss"]))
    assert_close(np.float32(losses[3:]), np.float32(losses[:3]), reduction=2048)


@pytest.mark.parametrize("name", cases("llama", "t5", "mamba"))
def test_generation(name):
    """Prompts are padded to what divides, or each device has all of them (mamba)."""
    module, inputs = build(name)
    model, ids = anyjax.from_torch(module), inputs["input_ids"][:1, :11]
    there = shard(model, mesh(data=2, sequence=4), "sequence")
    want = anyjax.generate(model, ids, max_new_tokens=6)
    np.testing.assert_array_equal(anyjax.generate(there, ids, max_new_tokens=6), want)


def test_lengths_that_do_not_divide():
    model, there = anyjax.from_torch(build("llama")[0]), mesh(data=2, sequence=4)
    state = TrainState.create(shard(model, there, "fsdp+sequence"), optax.sgd(0.1))
    with pytest.raises(WrongArguments, match="length 15 do not divide over 4") as caught:
        make_step(loss, optax.sgd(0.1))(state, batch_of(np.ones((2, 15), np.int32)))
    assert "pad them to 16" in str(caught.value)


def test_plans_need_an_axis():
    model = anyjax.from_torch(build("llama")[0])
    with pytest.raises(WrongArguments, match="no axis for sequence"):
        shard(model, mesh(data=8), "fsdp+sequence")
    with pytest.raises(WrongArguments, match="no plan 'fsdp\\+fsdp'"):
        shard(model, mesh(data=8), "fsdp+fsdp")


def test_what_is_divided():
    """Ids, masks and labels along the longest text; of other batches, embeddings."""
    there = mesh(data=2, sequence=4)
    ids, short = np.ones((2, 16), np.int32), np.ones((2, 6), np.int32)
    keys = jax.random.split(jax.random.key(0), (2, 3))
    batch = {"keys": keys, "ids": ids, "decoder": short, "label": np.ones(2, np.int32)}
    batch |= {"hidden": np.ones((2, 16, 3)), "x": np.ones((2, 5))}
    specs = {k: x.sharding.spec for k, x in place(batch, there).items()}
    data = P("data")
    assert specs.pop("keys")[0] == "data"
    want = dict(ids=P("data", "sequence"), decoder=data, x=data, label=data)
    assert specs == want | {"hidden": P("data", "sequence")}
    assert place(np.ones((1, 8, 3)), there).sharding.spec == P(None, "sequence")
    assert place(np.ones((2, 1), np.int32), there).sharding.spec == data  # one token
