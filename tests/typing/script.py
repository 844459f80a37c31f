"""A user's script: public names, with the type of what each returns; test_checkers.py runs it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
import torch

import anyjax
from anyjax import train
from anyjax.typing import ArrayLike, Output, TorchOutput

X = np.ones((4, 3), np.float32)
IDS = np.array([[1, 5, 7]])


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    )


def repeated() -> torch.nn.Module:
    return torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(3)))


def converted(folder: Path) -> None:
    model = assert_type(anyjax.from_torch(mlp()).eval(), anyjax.Model)
    assert_type(anyjax.convert(mlp()), anyjax.Model)
    exported = jax.export.export(jax.jit(jnp.sin))(jnp.ones(4))
    assert_type(anyjax.from_stablehlo(exported.serialize()), anyjax.Model)
    weights, function = anyjax.extract_jax(mlp())
    assert_type(weights, dict[str, jax.Array])
    assert_type(function, Callable[..., Output])
    model.save(folder / "saved", X, shapes={"input": "batch, ..."})
    assert_type(anyjax.load(folder / "saved")(X[:2]), Output)
    assert_type(anyjax.use_compilation_cache(folder / "cache"), Path)
    assert_type(anyjax.reuse_memory(), bool)


def pictures(folder: Path) -> None:
    library: Any = importlib.import_module("diffusers")  # which checkers do not see through
    unet = library.UNet2DConditionModel(
        cross_attention_dim=16, down_block_types=("DownBlock2D",), up_block_types=("UpBlock2D",),
        block_out_channels=(16,), norm_num_groups=8, sample_size=8, attention_head_dim=8,
    )  # fmt: skip
    modules = dict.fromkeys(("text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    scheduler = library.DDIMScheduler(clip_sample=False, steps_offset=1)
    modules |= {"unet": unet, "vae": library.AutoencoderKL(), "scheduler": scheduler}
    source = library.StableDiffusionPipeline(**modules, requires_safety_checker=False)
    pipe = assert_type(anyjax.from_diffusers(source), anyjax.diffusers.Pipeline)
    inputs: Any = {"prompt_embeds": jnp.ones((1, 5, 16)), "guidance_scale": 1.0}
    inputs |= {"steps": 2, "rng": jax.random.key(0)}
    assert_type(pipe(**inputs), TorchOutput)
    assert_type(pipe.apply(pipe.params, **inputs), Output)
    assert_type(pipe.with_params(pipe.params).inputs(**inputs), dict[str, Any])
    pipe.save(folder / "saved", **inputs)


def called(folder: Path) -> None:
    model = anyjax.from_torch(mlp()).eval()
    y: jax.Array = assert_type(model(X), Output)
    assert_type(model(torch.from_numpy(X)).sum(), jax.Array)
    assert_type(jnp.mean((model(X) - X[:, :2]) ** 2), jax.Array)
    assert_type(np.asarray(model(X)).shape, tuple[Any, ...])
    assert_type((y.shape, y.dtype), tuple[tuple[int, ...], np.dtype[Any]])
    assert_type(model.apply(model.params, X), Output)
    assert_type(model.apply(model.params, X, state=model.state, mutable=False)[0], Output)
    chosen = assert_type(anyjax.from_torch(lambda x: x[x > 0])(X), Output)
    assert isinstance(chosen, anyjax.CountedArray) or chosen.ndim == 1
    batch: dict[str, Any] = {"input": X}
    batch = assert_type(anyjax.static(model, batch), dict[str, Any])
    model.apply(model.params, **batch)
    out, state = model.train().apply(model.params, X, mutable=True)
    assert_type(out, Output)
    assert_type(state, dict[str, jax.Array])
    assert_type(model.with_state(state), anyjax.Model)
    numbers = {name: np.asarray(array) for name, array in model.params.items()}
    assert_type(model.with_params(numbers).params, dict[str, jax.Array])
    assert_type(model.init(jax.random.key(0)), dict[str, jax.Array])
    fresh_params, fresh_state = model.init(jax.random.key(0), mutable=True, build=mlp)
    assert_type(model.with_params(fresh_params).with_state(fresh_state), anyjax.Model)
    assert_type(model.to_torch(), torch.nn.Module)
    parts = anyjax.from_torch(lambda x: {"a": x, "b": (x, 2 * x)})(X)
    assert_type([(name, part) for name, part in parts.items()], list[tuple[str, Output]])
    first, second = parts["b"]
    assert_type(first + second, jax.Array)


def hugging_face(folder: Path) -> None:
    model = assert_type(anyjax.from_pretrained("examples/tiny-llama"), anyjax.Model)
    assert_type(model(IDS, labels=IDS).logits, Output)
    assert_type(float(model(IDS, labels=IDS).loss), float)
    assert_type(anyjax.generate(model, IDS, max_new_tokens=2), Output)
    assert_type(model.generate(torch.from_numpy(IDS), max_new_tokens=2)[0], Output)
    assert_type(anyjax.Cache.of(model, 8), anyjax.Cache)
    logits, cache = model.cache(8).prefill(model.params, IDS)
    assert_type(cache, anyjax.Cache)
    assert_type(cache.step(model.params, logits.argmax(-1)), tuple[jax.Array, anyjax.Cache])
    model.save_pretrained(folder / "as method")
    anyjax.save_pretrained(model, folder / "as function", card="owner/name")
    anyjax.hf.pipeline("text-generation", model, tokenizer="examples/tiny-llama")
    anyjax.hf.register_exporters()


def transformed(folder: Path) -> None:
    model = anyjax.from_torch(mlp()).eval()
    folded = anyjax.transforms.fold_batchnorm(model, X)
    rolled = anyjax.transforms.roll(anyjax.from_torch(repeated()), X)
    small = anyjax.transforms.quantize(model, "int8", block=1)
    steered = anyjax.transforms.edit(model, {"2$": lambda hidden: 1.1 * hidden})
    looked = anyjax.transforms.intermediates(model, r"^\d$")
    models = [anyjax.transforms.unroll(rolled), folded, small, steered]
    assert_type(models, list[anyjax.Model])
    out, activations = looked(X)
    assert_type(out, Output)
    assert_type({k: v.shape for k, v in activations.items()}, dict[str, tuple[int, ...]])
    assert_type(anyjax.transforms.explain(model, X).products, int)


def loss_fn(model: anyjax.Model, batch: Mapping[str, ArrayLike]) -> jax.Array:
    return ((model(batch["x"]) - jnp.asarray(batch["y"])) ** 2).mean()


def trained(folder: Path) -> None:
    import optax  # type: ignore[import-untyped, unused-ignore]

    model, tx = anyjax.from_torch(mlp()).train(), optax.adam(1e-2)
    step = train.make_step(loss_fn, tx, compute_dtype="bfloat16")
    train.make_step(train.model_loss, tx)
    train.make_step(train.losses.causal_lm, tx)
    train.make_step(lambda model, ids: (model(ids, labels=ids).loss, {"n": jnp.float32(1)}), tx)
    state = assert_type(train.TrainState.create(model, tx), train.TrainState)
    samples: dict[str, np.ndarray] = {"x": X, "y": X[:, :2]}
    data = train.Batches(samples, 2, key=0)
    assert_type(next(iter(data))["x"].shape, tuple[Any, ...])
    state, metrics = step(state, data.rows_at(np.arange(2)))
    assert_type(state, train.TrainState)
    assert_type(metrics["loss"], Output)
    sinks = [train.tensorboard(folder / "logs")]
    state = train.fit(state, step, data, folder=folder, epochs=1, log=sinks, progress=False)
    assert_type(state, train.TrainState)
    assert_type(train.evaluate(state, data, loss_fn), dict[str, float])
    assert_type(train.restore(folder, state), train.TrainState)
    assert_type(state.replace(step=state.step + 1).averaged, anyjax.Model)
    assert_type((state.params, state.state), tuple[dict[str, jax.Array], dict[str, jax.Array]])
    assert_type(
        train.loss_of(anyjax.from_torch(torch.nn.MSELoss()))(model.eval(), (X, X[:, :2])), jax.Array
    )


def fed(folder: Path) -> None:
    assert_type(next(train.prefetch([{"x": X}]))["x"], Output)
    assert_type(train.numpy_collate([{"x": X}])["x"].shape, tuple[Any, ...])
    assert_type(train.numpy_collate([X, X]).shape, tuple[Any, ...])
    assert_type(train.bucket([4, 8])([{"x": [1, 2]}])["x"].shape, tuple[Any, ...])
    row = next(train.pack([[1, 2], [3]], 8))
    assert_type(train.segment_mask(row["segment_ids"][None]), jax.Array)
    order = train.Shuffle(4, key=0)
    order.set_epoch(1)
    order.set_share(0, 2)
    assert_type(iter(order), Iterator[int])
    assert_type(order.order().shape, tuple[Any, ...])
    data = train.Batches((X, X), 2)
    data.set_epoch(1, start=1)
    data.set_share(0, 2)


def adapted(folder: Path) -> None:
    model = anyjax.from_pretrained("examples/tiny-llama")
    adapted = assert_type(train.lora(model, 2, "q_proj"), anyjax.Model)
    train.save_adapter(adapted, folder)
    assert_type(train.load_adapter(model, folder), anyjax.Model)
    assert_type(train.merge(adapted), anyjax.Model)
    assert_type(train.freeze(model, "embed"), anyjax.Model)


def sharded(folder: Path) -> None:
    parallel = anyjax.parallel
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    model = assert_type(parallel.shard(anyjax.from_torch(mlp()), mesh, "fsdp"), anyjax.Model)
    assert_type(parallel.place({"x": np.ones((8, 3))}, mesh)["x"], Output)
    assert_type(parallel.explain(model, mesh, "fsdp", X).arguments, int)
    estimated = parallel.estimate(anyjax.from_torch(mlp()), "v6e-8", "fsdp", np.ones((8, 3), "f4"))
    assert_type(estimated.fits, bool | None)
    with suppress(anyjax.errors.MissingDependency):
        asked = parallel.compile_for(model, "h100-8", "fsdp", np.ones((8, 3), "f4"))
        assert_type(asked.traffic, int)
    if jax.process_count() > 1:
        parallel.initialize()


def in_flax(folder: Path) -> None:
    from flax import linen, nnx

    flax = anyjax.flax
    module = flax.to_nnx(mlp())
    assert_type(module(X), Output)
    assert_type(flax.to_linen(mlp()).pretrained, bool)
    assert_type(nnx.state(module, flax.Buffer), nnx.State[Any, Any])
    assert_type(flax.source(torch.nn.Linear(3, 2), torch.ones(4, 3)), str)
    linear, report = flax.load_into(nnx.Linear(3, 2, rngs=nnx.Rngs(0)), torch.nn.Linear(3, 2))
    assert_type(linear, nnx.Linear)
    assert_type([match.layout for match in report], list[str])
    variables, _ = flax.load_into(linen.Dense(2), torch.nn.Linear(3, 2), example=jnp.asarray(X))
    assert_type(variables, dict[str, Output])
    assert_type(flax.to_torch(linear, torch.nn.Linear(3, 2))[0], torch.nn.Linear)
    np.savez(folder / "net.npz", kernel=X)
    assert_type(flax.read_params(folder / "net.npz")["kernel"], Output)
    assert_type(flax.Buffer(jnp.ones(3)), anyjax.flax.Buffer)


def in_torch(folder: Path) -> None:
    from flax import nnx

    x = torch.ones(4, 3)
    norm = anyjax.torch.from_jax(lambda x: jnp.sqrt((x**2).sum()))
    assert_type(norm(x), TorchOutput)
    weights: torch.Tensor = norm(x)
    theirs = anyjax.torch.module_from_flax(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    assert_type(theirs, torch.nn.Module)
    with anyjax.torch.on_jax():
        assert_type(torch.ones(2) + weights, torch.Tensor)
    backend = anyjax.torch.compile_backend
    torch.compile(mlp(), backend=backend)


def in_tensorflow(folder: Path) -> None:
    import tensorflow as tf  # type: ignore[import-untyped, unused-ignore]

    from anyjax import tensorflow

    twice = tf.function(lambda x: 2 * x)
    assert_type(anyjax.from_tensorflow(twice, X)(X), Output)
    function, params = tensorflow.convert(twice, X)
    assert_type(function, tensorflow.AnnotatedFunction)
    out, written = function(params, X)
    assert_type((out, written), tuple[Output, Output])
    assert_type(tensorflow.convert_functional(twice, X)(X), Output)
    module: Any = tf.Module()
    module.f = tf.function(tf.cos, input_signature=[tf.TensorSpec([])])
    tf.saved_model.save(module, str(folder))
    restored = tf.saved_model.load(str(folder)).f
    assert_type(tensorflow.convert_from_restored(restored)[0], tensorflow.AnnotatedFunction)
    assert_type(tensorflow.convert_functional_from_restored(restored)(0.0), Output)
    assert_type(tensorflow.get_unsupported_operations(["Relu"]), set[str])
    with tensorflow.override_config("strict_shape_check", True):
        tensorflow.update_config("strict_shape_check", True)
    assert_type(tensorflow.get_config("strict_shape_check"), bool | str)
    assert_type(tensorflow.config.get_config("strict_shape_check"), bool | str)
    text = jax.jit(jnp.sin).lower(jnp.ones(2)).as_text()
    mhlo = tensorflow.experimental.mhlo
    sine = mhlo.MhloModule(module=text, fun_name="sine")
    assert_type(mhlo.mhlo_apply(jnp.zeros(2), module=sine), Output)
    _, model = tensorflow.split_preprocessing(twice, X)
    assert_type(model, anyjax.Model)


def exported(folder: Path) -> None:
    model = anyjax.from_torch(mlp()).eval()
    file = assert_type(anyjax.export.to_onnx(model, folder / "net.onnx", X), Path)
    assert_type(anyjax.export.run_onnx(file, {"input": X})["output"].shape, tuple[Any, ...])
    assert_type(anyjax.from_onnx(file), anyjax.Model)
    assert_type(anyjax.export.to_savedmodel(model, folder / "net", X), Path)


def simulated(folder: Path) -> None:
    def energy(pos: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return (pos[edge_index[0]] - pos[edge_index[1]]).pow(2).sum()

    model, options = anyjax.from_torch(energy), {"energy": "output"}
    path = anyjax.export.atoms(
        model, folder / "springs", cutoff=2.0, species=[1], outputs=options, platforms=("cpu",)
    )
    springs = assert_type(anyjax.export.load_atoms(path), anyjax.export.Potential)
    positions = np.eye(3, dtype=np.float32)
    edges = assert_type(springs.neighbors(positions), dict[str, np.ndarray])
    structure = {"species": [1, 1, 1], **edges}
    slope = jax.grad(springs.energy_fn)(jnp.asarray(positions), **structure)
    assert_type(springs.properties(positions, **structure), dict[str, jax.Array])
    bridges = springs.energies_fn, springs.calculator, springs.openmm_force, springs.to_lammps
    assert all(map(callable, bridges))
    assert slope.shape == (3, 3) and springs.cutoff == 2.0


def looked_at(folder: Path) -> None:
    model = anyjax.from_torch(mlp()).eval()
    report = assert_type(anyjax.verify(model, X), anyjax.parity.Report)
    assert_type((report.ok, report.verdict, len(report.faults)), tuple[bool, str, int])
    report.to_html(folder / "verify.html")
    report.save_golden(folder / "golden")
    assert_type(report.as_dict(), dict[str, Any])
    if report.faults:
        assert_type(report.reproduce(folder / "case"), str)
    explored = assert_type(anyjax.explore(model, X), anyjax.explorer.Report)
    explored.to_html(folder / "explore.html")
    assert_type((explored.to_json(), explored.as_dict()), tuple[str, dict[str, Any]])


def extended(folder: Path) -> None:
    @anyjax.lowers("mine::twice")
    def twice(x: jax.Array) -> jax.Array:
        return 2 * x

    def absolute(x: jax.Array, /) -> jax.Array:
        return jnp.maximum(x, -x)

    assert_type(twice(jnp.ones(2)), jax.Array)
    assert_type(anyjax.onnx.lowers("Abs")(absolute)(jnp.ones(2)), jax.Array)
    assert_type(anyjax.stablehlo.lowers("stablehlo.abs")(absolute)(jnp.ones(2)), jax.Array)
    assert_type(anyjax.tensorflow.lowers("Abs")(absolute)(jnp.ones(2)), jax.Array)

    @anyjax.stablehlo.serves("mine")
    def mine(operands: list[jax.Array], attributes: dict[str, Any], types: Any) -> list[jax.Array]:
        return [2 * operands[0]]

    from anyjax.source import Source, SourceBase, SourceCache
    from anyjax.table import Param, Signature, Table

    table = Table("toy", lambda op: Signature(op, (Param("x", "array"),), op), lambda key: [key])
    with table.deferred():
        table.lowers("neg")(lambda x: -x)
    table.update({"twice": twice})
    assert_type(table["twice"].signature.kept, list[str])
    source = assert_type(anyjax.from_torch(mlp()).source, Source)
    assert_type(source.in_mode(True).cache, SourceCache)
    assert source.compiled({}, {}, (X,), {}) is None
    assert_type(source.training, bool | tuple[bool, ...])
    assert all(map(callable, (source.tapped, source.as_array, source.write_back)))
    assert_type(isinstance(source, SourceBase), bool)


def failed(folder: Path) -> None:
    try:
        anyjax.from_torch(torch.nn.Dropout()).train()(X)
    except anyjax.errors.MissingRng as error:
        error.advise("give a key")
        assert_type((error.what, error.do), tuple[str, str])
        assert_type(anyjax.errors.explain_command(type(error)), str)
    else:
        raise AssertionError


SECTIONS: tuple[Callable[[Path], None], ...] = (
    converted, called, pictures, hugging_face, transformed, trained, fed, adapted, sharded,
    in_flax, in_torch, in_tensorflow, exported, simulated, looked_at, extended, failed,
)  # fmt: skip

if __name__ == "__main__":
    for section in SECTIONS:
        with TemporaryDirectory() as name:
            section(Path(name))
        print(section.__name__, flush=True)
