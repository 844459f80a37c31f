"""A pipeline of diffusers in JAX: a Model of its whole call, and what happens outside of programs:
prompts become tokens, arrays become pictures.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import diffusers
import jax

from anyjax import summary
from anyjax.diffusers import pictures, tokens
from anyjax.diffusers import progress as bars
from anyjax.errors import WrongArguments
from anyjax.model import Model
from anyjax.torch import from_torch
from anyjax.typing import ArrayLike, Output, PyTree, TorchOutput


@dataclass(frozen=True, eq=False, repr=False)
class Pipeline:
    """A pipeline of diffusers as a pure function plus params; ``anyjax.from_diffusers`` makes it.

    It is a pytree of its Model's params and state. ``pipe.unet``, ``pipe.vae`` and the other
    modules of the pipeline are Models with the params that they have here.

    Attributes:
      model: the whole call as a Model: tokens, embeddings and noise in, arrays out.
      pipeline: diffusers' own, whose tokenizers and processors run outside of programs.

    Example:
      >>> import tempfile
      >>> blocks = {"down_block_types": ["DownBlock2D"], "up_block_types": ["UpBlock2D"]}
      >>> unet = diffusers.UNet2DModel(8, block_out_channels=[32], layers_per_block=1, **blocks)
      >>> pipe = anyjax.from_diffusers(diffusers.DDPMPipeline(unet, diffusers.DDPMScheduler()))
      >>> draw = lambda params, key: pipe.apply(params, steps=2, rng=key).images
      >>> key = jax.random.key(0)
      >>> jax.jit(draw)(pipe.params, key).shape
      (1, 3, 8, 8)
      >>> pipe.inputs(steps=2)
      {'output_type': 'pt', 'num_inference_steps': 2}
      >>> pipe.save(folder := tempfile.mkdtemp(), steps=2, rng=key)
      >>> anyjax.load(folder)(**pipe.inputs(steps=2), rng=key).images.shape
      (1, 3, 8, 8)
      >>> type(pipe.with_params(pipe.params).to_torch()).__name__
      'DDPMPipeline'
    """

    model: Model
    pipeline: Any

    @property
    def params(self) -> dict[str, jax.Array]:
        """The params of all components: ``unet.conv_in.weight``."""
        return self.model.params

    @property
    def state(self) -> dict[str, jax.Array]:
        """The other arrays of all components, by the same names."""
        return self.model.state

    def __call__(
        self,
        *args: PyTree,
        rng: jax.Array | None = None,
        progress: bool = False,
        **options: PyTree,
    ) -> TorchOutput:
        """Returns what the pipeline of diffusers returns for these arguments.

        One program is compiled for each kind of call: numbers such as ``height`` are static,
        arrays and prompts are not. Prompts of other numbers of tokens are another kind where the
        pipeline does not pad them to one length.

        Args:
          *args: as diffusers takes them, mostly the prompt alone.
          rng: the key of all noise; not needed with ``latents=`` and a scheduler that draws none.
          progress: show a bar of the steps; the program that tells of them is another one.
          **options: as diffusers takes them; ``steps`` is ``num_inference_steps``. With
            ``output_type="jax"`` pictures stay the arrays that are tensors for "pt".

        Raises:
          WrongArguments: the pipeline has no such argument, or ``generator`` is given.
          MissingRng: noise is drawn, and there is no key.
        """
        options = self._options(args, options)
        kind = options.get("output_type", self._default("output_type"))
        options["output_type"] = pictures.computed_as(kind, self.pipeline)
        inputs = self._inputs(options, rng)
        if progress:
            total = options.get("num_inference_steps", self._default("num_inference_steps"))
            with bars.shown(total):
                out = jax.block_until_ready(bars.counting(self.model)(rng=rng, **inputs))
        else:
            out = self.model(rng=rng, **inputs)
        return pictures.converted(out, kind, self.pipeline)

    def apply(
        self,
        params: Mapping[str, ArrayLike],
        *args: PyTree,
        state: Mapping[str, ArrayLike] | None = None,
        rng: jax.Array | None = None,
        **options: PyTree,
    ) -> Output:
        """Returns the output with arrays in it, as a pure function of params, arrays and ``rng``.

        Prompts are tokenized when it is traced.

        Args:
          params: arrays with the names and shapes of ``params``.
          *args: as diffusers takes them.
          state: arrays as in ``state``, which is the default.
          rng: the key of all noise.
          **options: as diffusers takes them. Pictures come as diffusers has them for
            ``output_type="pt"``.
        """
        inputs = self._inputs(self._options(args, options), rng)
        return self.model.apply(params, state=state, rng=rng, **inputs)

    def inputs(
        self, *args: PyTree, rng: jax.Array | None = None, **options: PyTree
    ) -> dict[str, Any]:
        """Returns the arguments of ``model`` for a call, with tokens in the place of prompts.

        Args:
          *args: as diffusers takes them.
          rng: the key of the call.
          **options: as diffusers takes them.
        """
        return self._inputs(self._options(args, options), rng)

    def with_params(self, params: Mapping[str, jax.typing.ArrayLike]) -> Pipeline:
        """Returns a new Pipeline with these params."""
        return replace(self, model=self.model.with_params(params))

    def save(
        self,
        folder: str | os.PathLike[str],
        *args: PyTree,
        rng: jax.Array | None = None,
        platforms: tuple[str, ...] = ("cpu", "cuda", "tpu"),
        **options: PyTree,
    ) -> None:
        """Writes the program of a call, so that ``anyjax.load`` runs it without torch.

        The model that is loaded takes what ``inputs`` returns for the same kind of call.

        Args:
          folder: where to.
          *args: as diffusers takes them.
          rng: the key of the call.
          platforms: what the program runs on.
          **options: as diffusers takes them.
        """
        inputs = self._inputs(self._options(args, options), rng)
        self.model.save(folder, rng=rng, platforms=platforms, **inputs)

    def to_torch(self) -> diffusers.DiffusionPipeline:
        """Returns the pipeline of diffusers with the params written into its modules."""
        self.model.to_torch()
        return self.pipeline

    def _options(self, args: tuple, options: dict[str, PyTree]) -> dict[str, Any]:
        """Returns the arguments of a call by diffusers' names."""
        if "steps" in options:
            options = {k: v for k, v in options.items() if k != "steps"} | {
                "num_inference_steps": options["steps"]
            }
        if options.get("generator") is not None:
            raise WrongArguments(
                f"{type(self.pipeline).__name__} in JAX has no generator",
                why="a JAX function gets its randomness as an argument",
                do="pass rng=jax.random.key(0), or the noise itself: latents=",
            )
        try:
            bound = self._signature.bind_partial(self.pipeline, *args, **options).arguments
        except TypeError as error:
            raise WrongArguments(
                f"{type(self.pipeline).__name__}: {error}",
                why="a pipeline takes the arguments of diffusers' own",
                do=f"it has {', '.join([*self._signature.parameters][1:])}",
            ) from None
        bound.pop("self", None)
        return bound | bound.pop("kwargs", {})

    @property
    def _signature(self) -> inspect.Signature:
        return inspect.signature(inspect.unwrap(type(self.pipeline).__call__))

    def _default(self, name: str) -> Any:
        parameter = self._signature.parameters.get(name)
        return None if parameter is None else parameter.default

    def _inputs(self, options: dict[str, PyTree], rng: jax.Array | None) -> dict[str, Any]:
        """Returns arguments of the Model; texts are tokens."""
        options = {"output_type": "pt"} | options
        if "output_type" not in self._signature.parameters:
            del options["output_type"]
        prompts = {k: x for k, x in options.items() if tokens.has_text(x) and "prompt" in k}
        if not prompts:
            return options
        source: Any = self.model.source
        arrays = jax.tree.map(source.as_array, options)
        with tokens.recording() as records:
            run = lambda params, state: source.base(params, state, (), arrays, rng)[0]
            jax.eval_shape(run, self.params, self.state)
        results = jax.tree.map(source.as_array, tuple(records))
        return options | tokens.placeholder(prompts) | {"tokenized": results}

    def __getattr__(self, name: str) -> Any:
        """Returns a module of the pipeline as a Model."""
        module = None if name.startswith("_") else self.pipeline.components.get(name)
        if not callable(getattr(module, "forward", None)):
            raise AttributeError(f"{type(self.pipeline).__name__} has no module {name}")
        model, prefix = from_torch(module), f"{name}."
        weights = {
            k.removeprefix(prefix): x
            for k, x in (self.state | self.params).items()
            if k.startswith(prefix)
        }
        params = {k: weights.get(k, x) for k, x in model.params.items()}
        state = {k: weights.get(k, x) for k, x in model.state.items()}
        return replace(model, params=params, state=state)

    def __repr__(self) -> str:
        return f"{type(self.pipeline).__name__}: {summary.of_model(self.model)}"


jax.tree_util.register_dataclass(Pipeline, data_fields=["model"], meta_fields=["pipeline"])
