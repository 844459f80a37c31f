"""The kinds of files: how a small valid one is written, how anyjax reads it, and how the library
that the format belongs to does.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import anyjax
from tests.processes.hostile import probe

Values = dict[str, np.ndarray]
EXAMPLES = Path(__file__).parents[3] / "examples" / "tiny-llama"
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
CONFIG = dict(
    vocab_size=32, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, intermediate_size=16, max_position_embeddings=32,
    pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
SENTENCE = "def main(argument): return 1"


@dataclass(frozen=True)
class Format:
    """A kind of files.

    Attributes:
      write: writes a valid original into an empty folder.
      read: reads the folder with anyjax.
      refer: reads it with the library of the format; None for formats of our own, whose files have
        checksums.
      needs: the package that reads it.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], Values]
    refer: Callable[[Path], Values] | None
    needs: str = "transformers"


def arrays_of(tree: object) -> Values:
    """Returns the leaves of a pytree by their paths."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    is_key = lambda x: isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    data = lambda x: np.asarray(jax.random.key_data(x) if is_key(x) else x)
    return {jax.tree_util.keystr(path): data(leaf) for path, leaf in leaves}


# Checkpoints of Hugging Face


def llama(**changes: object):
    import torch
    import transformers

    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG | changes)).eval()


def write_checkpoint(folder: Path) -> None:
    llama().save_pretrained(folder)


def write_shards(folder: Path) -> None:
    llama().save_pretrained(folder, max_shard_size="3KB")


def read_checkpoint(folder: Path) -> Values:
    model = anyjax.from_pretrained(folder)
    return {k: np.asarray(v) for k, v in {**model.params, **model.state}.items()}


def tensors_of(module) -> Values:
    named = [*module.named_parameters(), *module.named_buffers()]
    return {k: np.asarray(jnp.asarray(v.detach().numpy())) for k, v in named}


def refer_checkpoint(folder: Path) -> Values:
    import transformers

    name = (json.loads((folder / "config.json").read_bytes()).get("architectures") or [""])[0]
    cls = getattr(transformers, name, transformers.AutoModel)
    return tensors_of(cls.from_pretrained(folder, use_safetensors=True, dtype="auto"))


def write_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "config.json"):
        shutil.copy(EXAMPLES / name, folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    content["model"]["merges"] = content["model"]["merges"][:60]
    names = {"<|endoftext|>": 0, "<|pad|>": 1}
    vocabulary = {k: v for k, v in content["model"]["vocab"].items() if len(k) == 1} | names
    for pair in content["model"]["merges"]:
        first, second = pair if isinstance(pair, list) else pair.split(" ")
        vocabulary[first + second] = content["model"]["vocab"][first + second]
    content["model"]["vocab"] = vocabulary
    file.write_text(json.dumps(content), encoding="utf-8")


def encoded(tokenizer) -> Values:
    ids = tokenizer(SENTENCE, verbose=False).input_ids
    text = tokenizer.decode(ids).encode()
    return {"ids": np.asarray(ids), "text": np.frombuffer(text, np.uint8)}


def read_tokenizer(folder: Path) -> Values:
    from anyjax.cli._tokenizer import load as load_tokenizer

    return encoded(load_tokenizer(folder))


def refer_tokenizer(folder: Path) -> Values:
    import transformers

    return encoded(transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True))


@cache
def base() -> Path:
    """The checkpoint that adapters are for."""
    folder = Path(tempfile.mkdtemp(prefix="anyjax-base-"))
    write_checkpoint(folder)
    return folder


def write_adapter(folder: Path) -> None:
    model = anyjax.from_pretrained(base())
    model = anyjax.train.lora(model, 2, r"q_proj|v_proj", rng=jax.random.key(0))
    params = {
        k: jnp.arange(v.size, dtype=v.dtype).reshape(v.shape) for k, v in model.params.items()
    }
    anyjax.train.save_adapter(model.with_params(params), folder)


def sorted_arrays(arrays: Mapping[str, object]) -> Values:
    """Names differ: PEFT's are longer than those of a Model's params."""
    ordered = sorted((np.asarray(x) for x in arrays.values()), key=lambda x: (x.shape, x.tobytes()))
    return {str(i): x for i, x in enumerate(ordered)}


def read_adapter(folder: Path) -> Values:
    return sorted_arrays(anyjax.from_pretrained(base(), adapter=folder).params)


@cache
def base_model():
    return anyjax.from_pretrained(base())


def read_lora(folder: Path) -> Values:
    return sorted_arrays(anyjax.train.load_adapter(base_model(), folder).params)


def refer_adapter(folder: Path) -> Values:
    from safetensors.numpy import load_file

    return sorted_arrays(load_file(folder / "adapter_model.safetensors"))


def write_gguf(folder: Path) -> None:
    from benchmarks import gguf_file

    gguf_file.write(llama(), folder / "model.gguf", None)


def write_packed_gguf(folder: Path) -> None:
    from benchmarks import gguf_file

    module = llama(hidden_size=32, intermediate_size=32)
    gguf_file.write(module, folder / "model.gguf", "Q8_0")


def read_gguf(folder: Path) -> Values:
    anyjax.from_pretrained(folder / "model.gguf")
    model = anyjax.from_pretrained(folder / "model.gguf", dequantize=True)
    return {k: np.asarray(v) for k, v in {**model.params, **model.state}.items()}


def refer_gguf(folder: Path) -> Values:
    import transformers

    load = transformers.AutoModelForCausalLM.from_pretrained
    return tensors_of(load(folder, gguf_file="model.gguf", local_files_only=True))


# Formats of our own


class Net:
    """A torch module, made late: torch is imported when it is needed."""

    def __new__(cls):
        import torch

        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))


def write_saved(folder: Path) -> None:
    jax.config.update("jax_traceback_in_locations_limit", 0)
    folder.rmdir()
    anyjax.from_torch(Net()).save(folder, X)


def read_saved(folder: Path) -> Values:
    model = anyjax.load(folder)
    return arrays_of((model.params, model.state, model(X)))


def write_training(folder: Path) -> None:
    state, step = training()
    batches = [(X, X[:, :2])] * 2
    anyjax.train.fit(state, step, batches, folder=folder, keep=1, every=2)


@cache
def trainer():
    import optax

    model, tx = anyjax.from_torch(Net()), optax.adam(1e-2)
    loss = lambda model, batch: ((model(batch[0]) - batch[1]) ** 2).mean()
    return model, tx, anyjax.train.make_step(loss, tx)


def training():
    model, tx, step = trainer()
    return anyjax.train.TrainState.create(model, tx, rng=jax.random.key(3)), step


def read_training(folder: Path) -> Values:
    from anyjax.train.run.checkpoint import Checkpoints

    state = anyjax.train.restore(folder, training()[0])
    with Checkpoints(folder, keep=None) as checkpoints:
        progress = checkpoints.data(int(state.step))["progress"]
    text = json.dumps(progress, sort_keys=True).encode()
    return arrays_of(state) | {"progress": np.frombuffer(text, np.uint8)}


# StableHLO, TensorFlow, Keras


def program(x):
    y = jnp.tanh(x @ jnp.asarray(X.T[:, :2])) + jnp.arange(2.0)
    return jnp.where(y > 0, y, jnp.sin(y)), y.sum(0), jnp.argmax(y, 1)


def exported():
    jax.config.update("jax_traceback_in_locations_limit", 0)  # the same bytes everywhere
    return jax.export.export(jax.jit(program))(jax.ShapeDtypeStruct(X.shape, X.dtype))


def write_exported(folder: Path) -> None:
    (folder / "model.jax_export").write_bytes(exported().serialize())


def write_artifact(folder: Path) -> None:
    (folder / "model.mlirbc").write_bytes(exported().mlir_module_serialized)


def write_text(folder: Path) -> None:
    (folder / "model.mlir").write_text(exported().mlir_module(), encoding="utf-8")


def read_stablehlo(folder: Path) -> Values:
    (file,) = folder.glob("model.*")
    return arrays_of(jax.tree.leaves(anyjax.from_stablehlo(file)(X)))


def refer_exported(folder: Path) -> Values:
    program = jax.export.deserialize(bytearray((folder / "model.jax_export").read_bytes()))
    return arrays_of(jax.tree.leaves(program.call(X)))


def refer_artifact(folder: Path) -> Values:
    """Runs a module by XLA, in the frame of a valid program of the same arguments."""
    import dataclasses

    from jax.interpreters import mlir
    from jax.interpreters.mlir import ir

    (file,) = folder.glob("model.*")
    data, context = file.read_bytes(), mlir.make_ir_context()
    if file.suffix == ".mlir":
        from jax._src.export._export import _module_to_bytecode

        with context, ir.Location.unknown(context):
            data = _module_to_bytecode(ir.Module.parse(data.decode()))
    frame = dataclasses.replace(exported(), mlir_module_serialized=data)
    return arrays_of(jax.tree.leaves(frame.call(X)))


def keras_model():
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    return keras.Sequential([layers.Input((4,)), layers.Dense(3, "tanh"), layers.Dense(2)])


def write_savedmodel(folder: Path) -> None:
    import tensorflow as tf

    class Module(tf.Module):
        def __init__(self):
            super().__init__()
            self.w = tf.Variable(X.T, name="w")
            self.b = tf.Variable(tf.ones([3]), name="b")

        @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
        def __call__(self, x):
            return tf.nn.relu(x @ self.w + self.b) * tf.constant([1.0, 2.0, 3.0])

    tf.saved_model.save(Module(), folder)


def write_keras(folder: Path) -> None:
    keras_model().save(folder / "model.keras")


def write_h5(folder: Path) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keras_model().save(folder / "model.h5")


def tensorflow_path(folder: Path) -> Path:
    return next((x for x in folder.glob("model.*") if x.suffix in (".keras", ".h5")), folder)


def read_tensorflow(folder: Path) -> Values:
    model = anyjax.from_tensorflow(tensorflow_path(folder))
    outputs = arrays_of(model(X))
    variables = {**model.params, **model.state}.values()
    return outputs | sorted_arrays({str(i): x for i, x in enumerate(variables)})


def refer_savedmodel(folder: Path) -> Values:
    import tensorflow as tf

    module = tf.saved_model.load(str(folder))
    # the same choice as ours where the object itself cannot be called
    outputs = module(X) if callable(module) else module.signatures["serving_default"](X)
    variables = {str(i): x.numpy() for i, x in enumerate([module.w, module.b])}
    return arrays_of(jax.tree.map(np.asarray, outputs)) | sorted_arrays(variables)


def refer_keras(folder: Path) -> Values:
    import keras

    model = keras.models.load_model(tensorflow_path(folder), compile=False)
    variables = {str(i): x.numpy() for i, x in enumerate(model.variables)}
    return arrays_of(np.asarray(model(X))) | sorted_arrays(variables)


FORMATS = {
    "probe": Format(probe.write, probe.read, None, "jax"),
    "safetensors": Format(write_checkpoint, read_checkpoint, refer_checkpoint),
    "index": Format(write_shards, read_checkpoint, refer_checkpoint),
    "config": Format(write_checkpoint, read_checkpoint, refer_checkpoint),
    "tokenizer": Format(write_tokenizer, read_tokenizer, refer_tokenizer),
    "adapter": Format(write_adapter, read_adapter, refer_adapter, "peft"),
    "lora": Format(write_adapter, read_lora, refer_adapter, "optax"),
    "gguf": Format(write_gguf, read_gguf, refer_gguf, "gguf"),
    "gguf-packed": Format(write_packed_gguf, read_gguf, refer_gguf, "gguf"),
    "saved": Format(write_saved, read_saved, None, "torch"),
    "training": Format(write_training, read_training, None, "optax"),
    "exported": Format(write_exported, read_stablehlo, refer_exported, "jax"),
    "bytecode": Format(write_artifact, read_stablehlo, refer_artifact, "jax"),
    "text": Format(write_text, read_stablehlo, refer_artifact, "jax"),
    "savedmodel": Format(write_savedmodel, read_tensorflow, refer_savedmodel, "tensorflow"),
    "keras": Format(write_keras, read_tensorflow, refer_keras, "keras"),
    "h5": Format(write_h5, read_tensorflow, refer_keras, "keras"),
}
