"""Checkpoints of JAX models as files: Orbax, msgpack, safetensors, npz; damaged ones."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import torch
from flax import nnx, serialization
from safetensors.numpy import save_file

import anyjax
from anyjax.errors import BadCheckpoint, WrongWeights
from anyjax.flax import read_params, to_torch
from tests.flax.torch_side import normal, torch_mlp

LAYERS = {"key": (3, 8), "step": (8, 2)}  # layers may be called as counters are


def params():
    return {k: {"kernel": normal(*s), "bias": normal(s[1])} for k, s in LAYERS.items()}


def assert_loaded(path, weights, **key):
    theirs = torch_mlp(3, 8, 2)
    to_torch(read_params(path, **key), theirs)
    for i, layer in zip((0, 2), weights.values()):
        np.testing.assert_array_equal(theirs[i].weight.detach().numpy().T, layer["kernel"])
        np.testing.assert_array_equal(theirs[i].bias.detach().numpy(), layer["bias"])


def saved(folder, tree):
    ocp.PyTreeCheckpointer().save(folder, tree)
    return folder


def test_orbax_params_and_train_states(tmp_path):
    weights = params()
    state = {"params": weights, "opt_state": optax.adam(1e-3).init(weights), "step": 3}
    assert_loaded(saved(tmp_path / "a", weights), weights)
    assert_loaded(saved(tmp_path / "b", {"params": weights}), weights)
    assert_loaded(saved(tmp_path / "c", state), weights)
    assert_loaded(saved(tmp_path / "d", {"state": state, "epoch": jnp.arange(2)}), weights)
    to_torch(tmp_path / "c", torch_mlp(3, 8, 2))


def test_the_last_step_of_a_manager(tmp_path):
    weights = params()
    with ocp.CheckpointManager(tmp_path / "run", item_names=("state", "data")) as manager:
        for step, tree in ((1, jax.tree.map(np.zeros_like, weights)), (20, weights)):
            items = {
                "state": ocp.args.StandardSave({"params": tree}),
                "data": ocp.args.JsonSave({}),
            }
            manager.save(step, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    assert_loaded(tmp_path / "run", weights)


def test_nnx_modules_with_their_optimizer(tmp_path):
    net = nnx.List([nnx.Linear(3, 8, rngs=nnx.Rngs(0)), nnx.Linear(8, 2, rngs=nnx.Rngs(1))])
    optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)
    weights = [{"kernel": x.kernel[...], "bias": x.bias[...]} for x in net]
    folder = saved(tmp_path / "a", nnx.state((net, optimizer)))
    assert_loaded(folder, dict(enumerate(weights)))


def test_a_run_of_anyjax_itself(tmp_path):
    module = torch_mlp(3, 8, 2)
    state = anyjax.train.TrainState.create(anyjax.from_torch(module), optax.sgd(0.1))
    step = anyjax.train.make_step(lambda model, x: (model(x) ** 2).mean(), optax.sgd(0.1))
    batches = [normal(4, 3) for _ in range(2)]
    trained = anyjax.train.fit(state, step, batches, folder=tmp_path, progress=False)
    theirs, _ = to_torch(tmp_path, torch_mlp(3, 8, 2))
    for name, value in theirs.state_dict().items():
        np.testing.assert_array_equal(value, trained.model.params[name])


def test_files(tmp_path):
    weights = params()
    flat = {f"{k}/{x}": v for k, layer in weights.items() for x, v in layer.items()}
    (tmp_path / "a.msgpack").write_bytes(serialization.msgpack_serialize({"params": weights}))
    np.savez(tmp_path / "b.npz", **flat)
    save_file({k.replace("/", "."): v for k, v in flat.items()}, tmp_path / "c.safetensors")
    for name in ("a.msgpack", "b.npz"):
        assert_loaded(tmp_path / name, weights)
    assert set(read_params(tmp_path / "c.safetensors")) == {k.replace("/", ".") for k in flat}


def test_a_folder_of_one_file_and_of_several(tmp_path):
    weights = params()
    for name in ("a", "b"):
        (tmp_path / f"{name}.msgpack").write_bytes(serialization.msgpack_serialize(weights))
        if name == "a":
            assert_loaded(tmp_path, weights)
    with pytest.raises(BadCheckpoint, match=r"holds a.msgpack, b.msgpack"):
        read_params(tmp_path)


def test_two_sets_of_params_are_not_chosen_between(tmp_path):
    weights = params()
    old = jax.tree.map(np.zeros_like, weights)
    file = tmp_path / "a.msgpack"
    file.write_bytes(serialization.msgpack_serialize({"params": old, "ema_params": weights}))
    with pytest.raises(BadCheckpoint, match="holds ema_params, params") as error:
        read_params(file)
    assert "--key" in str(error.value)
    assert_loaded(file, weights, key="ema_params")
    with pytest.raises(BadCheckpoint, match="has no average"):
        read_params(file, key="average")


@pytest.mark.parametrize(
    "name, content, match",
    [
        ("a.msgpack", b"\x93\x01", "cannot be read"),
        ("a.msgpack", serialization.msgpack_serialize({"step": 3}), "holds no params"),
        ("a.npz", b"PK\x03\x04 no archive", "cannot be read"),
        ("a.safetensors", b"\x10\0\0\0", "safetensors"),
        ("a.pkl", b"", "is a pickle"),
        ("missing", None, "there is no"),
    ],
)
def test_damaged_files(tmp_path, name, content, match):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadCheckpoint, match=match):
        read_params(tmp_path / name)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_truncated_checkpoint(tmp_path):
    folder = saved(tmp_path / "a", params())
    for file in (folder / "d").iterdir():
        file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(BadCheckpoint, match="cannot be read"):
        read_params(folder)
    gc.collect()  # Orbax's event loop complains as it goes


def test_a_checkpoint_that_lacks_a_layer(tmp_path):
    weights = params()
    del weights["step"]
    with pytest.raises(WrongWeights, match="not used"):
        to_torch(saved(tmp_path / "a", weights), torch_mlp(3, 8, 2))
    assert torch.is_tensor(torch_mlp(3, 8, 2)[0].weight)
