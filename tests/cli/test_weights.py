"""``anyjax weights``: JAX checkpoints as PyTorch's, proved where the JAX model is named."""

import json
import shutil

import jax
import numpy as np
import pytest
import torch
import transformers
from flax import nnx, serialization, traverse_util
from safetensors.numpy import load_file
from typer.testing import CliRunner

from anyjax.cli import app
from anyjax.errors import BadCheckpoint, WrongArguments, WrongWeights
from tests.models import tiny

MODELS = """
import torch
from flax import linen as nn, nnx
import jax.numpy as jnp

class Net(nnx.Module):
    def __init__(self, *, rngs):
        self.first, self.last = nnx.Linear(4, 4, rngs=rngs), nnx.Linear(4, 4, rngs=rngs)
    def __call__(self, x):
        return self.last(nnx.relu(self.first(x)))

class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(4, name="last")(nn.relu(nn.Dense(4, name="first")(x)))

def apply(params, x):
    first, last = params["first"], params["last"]
    return jnp.maximum(x @ first["kernel"] + first["bias"], 0) @ last["kernel"] + last["bias"]

class Torch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    def forward(self, x):
        return self.last(torch.relu(self.first(x)))

class Other(Torch):
    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with a module of models and a checkpoint of their params."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models_of_a_test.py").write_text(MODELS)
    rng = np.random.default_rng(0)
    layer = lambda: {
        "kernel": rng.normal(size=(4, 4)).astype("f"),
        "bias": rng.normal(size=4).astype("f"),
    }
    params = {"first": layer(), "last": layer()}
    (tmp_path / "net.msgpack").write_bytes(serialization.msgpack_serialize({"params": params}))
    return tmp_path, params


def run(*args):
    return CliRunner().invoke(app, ["weights", *args])


@pytest.mark.parametrize("side", ["Net", "Linen", "apply"])
def test_a_module_of_ones_own(folder, side):
    path, params = folder
    args = ("--model", "models_of_a_test:Torch", "--jax", f"models_of_a_test:{side}")
    result = run("net.msgpack", "net.safetensors", *args, "--input", "3x4")
    assert result.exit_code == 0, result.output
    assert "checked: the outputs differ by" in result.stdout
    weights = load_file(path / "net.safetensors")
    np.testing.assert_array_equal(weights["first.weight"].T, params["first"]["kernel"])


def test_without_the_jax_model_nothing_is_proved(folder):
    path, params = folder
    result = run("net.msgpack", "out", "--model", "models_of_a_test:Torch", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["checked"].startswith("nothing") and len(report["matches"]) == 4
    weights = load_file(path / "out" / "model.safetensors")
    np.testing.assert_array_equal(weights["last.bias"], params["last"]["bias"])


def test_models_that_disagree_are_an_error_and_nothing_is_written(folder):
    path, _ = folder
    args = ("--jax", "models_of_a_test:Net", "--input", "3x4")
    result = run("net.msgpack", "net.safetensors", "--model", "models_of_a_test:Other", *args)
    assert isinstance(result.exception, WrongWeights)
    assert not (path / "net.safetensors").exists()


@pytest.mark.parametrize(
    "args, error, match",
    [
        (("none.msgpack", "out"), BadCheckpoint, "there is no"),
        (("net.msgpack", "out", "--key", "ema"), BadCheckpoint, "has no ema"),
        (("net.msgpack", "out", "--match", "first"), WrongArguments, "names both sides"),
        (("net.msgpack", "out", "--match", "first="), WrongWeights, "not used"),
        (("net.msgpack", "out", "--jax", "models_of_a_test:MODELS"), WrongArguments, "there is no"),
    ],
)
def test_wrong_arguments(folder, args, error, match):
    result = run(*args, "--model", "models_of_a_test:Torch")
    assert isinstance(result.exception, error)
    assert match in str(result.exception)
    assert not (folder[0] / "out").exists()


def test_a_checkpoint_with_config_and_tokenizer(tmp_path):
    module, _ = tiny.build("bert")
    (tmp_path / "bert").mkdir()
    module.config.architectures = ["BertForMaskedLM"]
    module.config.save_pretrained(tmp_path / "bert")
    shutil.copy("examples/tiny-llama/tokenizer.json", tmp_path / "bert")
    flat = {}
    for name, value in module.state_dict().items():  # of a written Flax module
        *home, leaf = name.split(".")
        if "decoder" not in home:
            is_table = any("embeddings" in x for x in home[-1:])
            turned = value.numpy() if is_table or value.ndim < 2 else value.numpy().T
            names = {"weight": "embedding" if is_table else "kernel" if value.ndim > 1 else "scale"}
            flat[(*home, names.get(leaf, leaf))] = turned
    tree = {"params": traverse_util.unflatten_dict(flat), "opt_state": {"mu": np.ones(3)}}
    (tmp_path / "net.msgpack").write_bytes(serialization.msgpack_serialize(tree))
    target = tmp_path / "out"
    result = run(str(tmp_path / "net.msgpack"), str(target), "--model", str(tmp_path / "bert"))
    assert result.exit_code == 0, result.output
    assert (target / "tokenizer.json").exists()
    loaded = transformers.BertForMaskedLM.from_pretrained(target)
    for name, value in module.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)


def test_params_of_nnx_are_read_as_they_are_saved(folder):
    import orbax.checkpoint as ocp

    path, params = folder
    net = nnx.Dict({k: nnx.Linear(4, 4, rngs=nnx.Rngs(0)) for k in params})
    values = jax.tree.map(lambda x: x, nnx.state(net))
    ocp.PyTreeCheckpointer().save(path / "orbax", values)
    args = ("--model", "models_of_a_test:Torch", "--jax", "models_of_a_test:Net")
    result = run("orbax", "net.safetensors", *args, "--input", "3x4")
    assert result.exit_code == 0, result.output
    first = np.asarray(net["first"].kernel[...])
    np.testing.assert_array_equal(load_file("net.safetensors")["first.weight"].T, first)
