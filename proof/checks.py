"""Checks of one tiny model of transformers: each returns nothing, or says what is wrong."""

from __future__ import annotations

import contextlib
import copy
import functools
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map
from transformers import PreTrainedModel

import anyjax
from anyjax.errors import DataDependent, NotRolled
from proof.comparison import (
    NotApplicable,
    Wrong,
    compare,
    first_line,
    settle,
    torch_slopes,
)
from proof.tiny_inputs import Inputs, Tiny, call

VALUES, GRADIENTS = 1e-4, 1e-3  # parts of an array's largest value
NEW_TOKENS = 6
DOUBLINGS = 4  # of weights


def floats(out: object) -> list[jax.Array]:
    """Returns the arrays of an output that are floats, in its order."""
    leaves = jax.tree.leaves(out)
    return [x for x in leaves if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)]


class Checks:
    """The checks of a model, each a method with its name; what several need is computed once."""

    def __init__(self, case: Tiny):
        self.case = case
        self.key = jax.random.key(0)
        tensors = {k: v for k, v in case.inputs.items() if isinstance(v, torch.Tensor)}
        self.static = {k: v for k, v in case.inputs.items() if k not in tensors}
        self.arrays = {k: v.numpy() for k, v in tensors.items()}
        self.tensors = tensors
        self.traces = 0

    @functools.cached_property
    def model(self) -> anyjax.Model:
        return anyjax.from_torch(self.case.model)

    @functools.cached_property
    def jitted(self) -> Callable:
        """One program of the pure function, which counts its traces."""

        def function(params, arrays):
            self.traces += 1
            return floats(self.model.apply(params, rng=self.key, **{**self.static, **arrays}))

        return jax.jit(function)

    def run(self, arrays: dict) -> list[jax.Array]:
        """Returns what the program gives; where values decide shapes, what the model's own call
        does, which makes inputs static; where weights decide, what ``apply`` outside of jit gives.
        """
        params, options = self.model.params, {"rng": self.key, **arrays, **self.static}
        with contextlib.suppress(DataDependent):
            return self.jitted(params, arrays)
        with contextlib.suppress(DataDependent):
            return floats(self.model(**options))
        return floats(self.model.apply(params, **options))

    @functools.cached_property
    def flipped(self) -> Inputs:
        """The inputs with their rows in the opposite order."""
        flip = lambda x: x.flip(0) if isinstance(x, torch.Tensor) and x.ndim else x
        return {k: flip(v) for k, v in self.case.inputs.items()}

    def arrays_of(self, inputs: Inputs) -> dict[str, np.ndarray]:
        return {k: inputs[k].numpy() for k in self.arrays}

    def wide(self, inputs: Inputs) -> list[torch.Tensor]:
        """Returns what torch computes in 64 bits."""
        return call(*in_64_bits(self.case.model, inputs))

    def forward(self) -> None:
        """The values of one program are torch's."""
        self._compare(self.run(self.arrays))

    def jit(self) -> str:
        """``jax.jit`` of ``model.apply`` is traced once, and right for values that it never saw;
        once for each layout where ``anyjax.static`` makes one of arrays. Returns their names.
        """
        params, batches = self.model.params, [self.arrays, self.arrays_of(self.flipped)]
        try:
            self.jitted(params, batches[0])
        except DataDependent:  # values decide shapes
            static = lambda arrays: anyjax.static(self.model, arrays | self.static, rng=self.key)
            batches, self.traces = [*map(static, batches)], 0
            self.jitted(params, batches[0])
        got = self.jitted(params, batches[1])
        if self.traces > len({*map(jax.tree.structure, batches)}):
            raise Wrong(f"traced {self.traces} times for two calls of the same shapes")
        exact = lambda: self.wide(self.flipped)
        settle(got, call(self.case.model, self.flipped), exact, VALUES, self.case.random)
        names = [k for k, x in batches[1].items() if k in self.arrays and not jax.tree.leaves(x)]
        return f"static: {', '.join(names)}" if names else ""

    def gradient(self) -> None:
        """The gradients of all parameters are torch's, of a sum of sines."""
        if self.case.random:
            raise NotApplicable("outputs are random")
        reference, places = gradients(self.case.model, self.case.inputs)

        def loss(params):
            out = floats(self.model.apply(params, rng=self.key, **self.arrays, **self.static))
            return sum(jnp.sin(out[i]).sum() for i in places)

        slopes = jax.jit(jax.grad(loss))(self.model.params)
        missing = sorted(k for k, x in reference.items() if k not in slopes and x.abs().max() > 0)
        if missing:
            raise Wrong(f"no gradient of {missing[0]}")
        names = [k for k in reference if k in slopes]
        largest = max(float(x.abs().max()) for x in reference.values() if x.numel())
        wide = functools.cache(lambda: gradients(*in_64_bits(self.case.model, self.case.inputs))[0])
        exact = lambda: [wide()[k] for k in names]
        pairs = [slopes[k] for k in names], [reference[k] for k in names]
        settle(*pairs, exact, GRADIENTS, names=names, floor=GRADIENTS * largest)

    def vmap(self) -> None:
        """``jax.vmap`` over a batch of inputs is the loop over it; where integers decide shapes,
        over the floats alone, or the tokens where there are none.
        """
        rows = [self.arrays, self.arrays_of(self.flipped)]
        try:
            batched, fixed = self._mapped(rows, [*self.arrays])
        except DataDependent:
            names = [k for k, x in self.arrays.items() if x.dtype.kind == "f"]
            batched, fixed = self._mapped(rows, names or ["input_ids"])
        for i, row in enumerate(rows):
            reference = self.run({k: fixed.get(k, x) for k, x in row.items()})
            compare([x[i] for x in batched], reference, VALUES, self.case.random)

    def _mapped(self, rows: list[dict], names: list[str]) -> tuple[list[jax.Array], dict]:
        """Returns the outputs for a batch of these arrays, and the other arrays."""
        fixed = {k: x for k, x in rows[0].items() if k not in names}
        batch = {k: np.stack([row[k] for row in rows]) for k in rows[0] if k in names}
        if not batch:
            raise NotApplicable("all inputs decide shapes")
        function = lambda x: floats(
            self.model.apply(self.model.params, rng=self.key, **fixed, **x, **self.static)
        )
        return jax.jit(jax.vmap(function))(batch), fixed

    def roll(self) -> None:
        """Repeated layers as one loop give the same."""
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotRolled)
            try:
                rolled = self._with_example(functools.partial(anyjax.transforms.roll, self.model))
            except NotRolled as warning:
                raise NotApplicable("no layers repeat") from warning
        self._compare(floats(rolled(**self.example)))

    @property
    def example(self) -> dict:
        return {"rng": self.key, **self.arrays, **self.static}

    def _with_example(self, function: Callable) -> object:
        """Returns the function's result for an example of the inputs; where their values decide
        shapes, for the model's last call instead, in which those values are static.
        """
        try:
            return function(**self.example)
        except DataDependent:
            self.model(**self.example)
            return function()

    def _compare(self, got: list[jax.Array]) -> None:
        """Checks that the values are torch's."""
        exact = lambda: self.wide(self.case.inputs)
        settle(got, self.case.outputs, exact, VALUES, self.case.random)

    def save(self) -> None:
        """``anyjax.load`` of ``model.save``, and transformers' loading of ``save_pretrained``."""
        with tempfile.TemporaryDirectory() as folder:
            saved = Path(folder, "model")
            self._with_example(functools.partial(self.model.save, saved, platforms=("cpu",)))
            self._compare(floats(anyjax.load(saved)(**self.example)))
            again = reloaded(self.case.model, self.model, Path(folder, "a"), Path(folder, "b"))
            compare(call(again, self.case.inputs), self.case.outputs, VALUES, self.case.random)

    def generate(self) -> None:
        """Greedy generation with a cache picks transformers' tokens."""
        if not self.case.model.can_generate():
            raise NotApplicable("no text is generated")
        module = fresh(self.case.model)
        options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "use_cache": True}
        settings = module.generation_config
        if module.config.is_encoder_decoder and settings.decoder_start_token_id is None:
            options["decoder_start_token_id"] = settings.bos_token_id or 0
        left = {k: v for k, v in self.tensors.items() if not k.startswith("decoder_")}
        left.pop("attention_mask", None)  # it pads on the right
        try:
            wanted = varied_tokens(module, left, options)
        except Exception as error:
            raise NotApplicable(f"transformers itself: {first_line(error)}") from error
        if not isinstance(wanted, torch.Tensor) or wanted.is_floating_point():
            raise NotApplicable("transformers generates no tokens alone")
        arrays = {k: v.numpy() for k, v in left.items()}
        got = np.asarray(anyjax.generate(anyjax.from_torch(module), **arrays, **options))
        if not np.array_equal(got, wanted.numpy()):
            raise Wrong(f"tokens differ from transformers': {different(got, wanted.numpy())}")

    def shard(self) -> None:
        """The weights divided over a mesh of four devices give the same."""
        mesh = jax.make_mesh((4,), ("model",))
        shard = functools.partial(anyjax.parallel.shard, self.model, mesh, "tp")
        self._compare(floats(self._with_example(shard)(**self.example)))

    def flax(self) -> None:
        """Flax source is written, and agrees with the module where it checks itself."""
        anyjax.flax.source(fresh(self.case.model), **copy.deepcopy(self.case.inputs))


CHECKS = ("forward", "gradient", "jit", "vmap", "roll", "save", "generate", "shard", "flax")


def different(got: np.ndarray, wanted: np.ndarray) -> str:
    """Returns what differs between two arrays of tokens."""
    if got.shape != wanted.shape:
        return f"shape {got.shape} for {wanted.shape}"
    return f"{(got != wanted).sum()} of {wanted.size}"


def reloaded(
    module: PreTrainedModel, model: anyjax.Model, folder: Path, other: Path
) -> PreTrainedModel:
    """Returns the module of the checkpoint that ``model.save_pretrained`` writes.

    Raises:
      NotApplicable: transformers cannot load its own checkpoint of this module, either.
    """
    load = lambda path: type(module).from_pretrained(path).eval().float()
    try:
        model.save_pretrained(folder)
        return load(folder)
    except Exception:  # raised below, unless transformers fails at its own checkpoint, too
        try:
            module.save_pretrained(other)
            load(other)
        except Exception as error:
            line = first_line(error)
            raise NotApplicable(f"transformers does not load its own checkpoint: {line}") from error
        raise


def fresh(module: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy without what calls have put into the module."""
    again = type(module)(copy.deepcopy(module.config)).eval().float()
    again.load_state_dict(module.state_dict())
    return again


def varied_tokens(module: torch.nn.Module, inputs: Inputs, options: dict[str, object]) -> object:
    """Returns what transformers generates, with weights scaled until the new tokens vary: small
    weights pick one token again and again, whatever is in the cache. With weights so large that
    rounding decides, float64 picks other tokens.
    """

    def generated(by: torch.nn.Module) -> torch.Tensor:
        torch.manual_seed(0)
        return by.generate(**copy.deepcopy(inputs), **options)

    ids = generated(module)
    for _ in range(DOUBLINGS):
        is_text = isinstance(ids, torch.Tensor)
        if not is_text or len(ids[0, -NEW_TOKENS:].unique()) > NEW_TOKENS // 2:
            break
        scale(module, 2)
        scaled_ids = generated(module)
        with contextlib.suppress(Exception):  # what float64 cannot run is no judge
            if torch.equal(scaled_ids, generated(copy.deepcopy(module).double())):
                ids = scaled_ids
                continue
        scale(module, 0.5)
        break
    return ids


@torch.no_grad()
def scale(module: torch.nn.Module, factor: float) -> None:
    """Multiplies the matrices of a module."""
    for weight in module.parameters():
        if weight.dim() > 1:
            weight.mul_(factor)


def in_64_bits(module: torch.nn.Module, inputs: Inputs) -> tuple[torch.nn.Module, Inputs]:
    """Returns both with floats of 64 bits."""
    widen = lambda x: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
    return copy.deepcopy(module).double(), tree_map(widen, inputs)


def gradients(module: torch.nn.Module, inputs: Inputs) -> tuple[dict[str, torch.Tensor], list[int]]:
    """Returns torch's gradients by name, and the places of the outputs that they are of.

    Raises:
      NotApplicable: torch has none.
    """
    try:
        leaves = tree_leaves(module(**copy.deepcopy(inputs)))
    except RuntimeError as error:
        raise NotApplicable("torch itself has no gradients") from error
    out = [x for x in leaves if isinstance(x, torch.Tensor) and x.is_floating_point()]
    return torch_slopes(out, {k: p for k, p in module.named_parameters() if p.requires_grad})
