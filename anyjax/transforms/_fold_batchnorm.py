"""``fold_batchnorm``: scale and shift of BatchNorm in the weights of the layer before it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import lax

from anyjax.errors import Unsupported, WrongArguments, WrongValue
from anyjax.model import Model
from anyjax.takes_model import takes_model
from anyjax.transforms._intermediates import intermediates
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import torch

TOLERANCE = 1e-3  # of the largest value: the weights are rounded once more


@takes_model
def fold_batchnorm(model: Model, *args: Any, **kwargs: Any) -> Model:
    """Folds BatchNorm into the convolution, or linear layer, whose output it takes.

    In evaluation mode it is a scale and a shift of each channel, which the layer's weights and
    bias can have. The result has fewer arrays and operations. On CPUs and GPUs XLA computes them
    with what follows anyway (ResNet-50 took 0.98 of its time): it serves models that are exported,
    quantized or written in another language.

    Args:
      model: a Model of a torch module, in evaluation mode.
      *args: an example of its inputs: which layer comes before which BatchNorm is seen in a call.
      **kwargs: those by name.

    Returns:
      A Model without these BatchNorms, and with a ``bias`` of each layer before one.

    Raises:
      Unsupported: the model is not of a torch module.
      WrongArguments: the model is in training mode, or no BatchNorm follows a layer.
      WrongValue: something else takes the output of such a layer, too, so that the values differ.

    Source:
      https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.fuse_conv_bn_eval.html

    Example:
      >>> import numpy as np, torch
      >>> layers = torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()
      >>> model = anyjax.from_torch(torch.nn.Sequential(*layers).eval())
      >>> x = np.ones((1, 3, 8, 8), np.float32)
      >>> sorted(anyjax.transforms.fold_batchnorm(model, x).params)
      ['0.bias', '0.weight']
    """
    from anyjax.torch.source import TorchSource

    if not isinstance(model.source, TorchSource):
        raise Unsupported(
            f"fold_batchnorm of a {type(model.source).__name__}, a {model.source.framework} model",
            why="its layers are not torch modules",
            do="fold what anyjax.from_torch returns, before it is quantized, rolled or saved",
        )
    if any(model.source.training):
        raise WrongArguments(
            "fold_batchnorm of a model in training mode",
            why="BatchNorm takes the statistics of each batch there",
            do="fold model.eval()",
        )
    folded = _folded(model, _pairs(model, args, kwargs))
    got, want = (jax.tree.leaves(x(*args, **kwargs)) for x in (folded, model))
    for mine, theirs in zip(got, want, strict=True):
        largest = np.max(np.abs(theirs), initial=1e-30)
        if not np.max(np.abs(np.asarray(mine) - theirs), initial=0) <= TOLERANCE * largest:
            raise WrongValue(
                "the folded model gives other values",
                why="something else takes the output of a layer before a BatchNorm, too",
                do="keep the model as it is",
            )
    return folded


def _pairs(model: Model, args: PyTree, kwargs: PyTree) -> dict[str, str]:
    """Returns the path of each layer whose output a BatchNorm takes, and that of the BatchNorm."""
    from torch import nn

    convolutions = nn.Conv1d, nn.Conv2d, nn.Conv3d
    convolutions += nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d  # type: ignore
    batch_norms = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
    modules = dict(model.source.module.named_modules())
    layers = [path for path, x in modules.items() if isinstance(x, (nn.Linear, *convolutions))]
    norms = [path for path, x in modules.items() if isinstance(x, batch_norms)]
    norms = [path for path in norms if f"{path}.running_mean" in model.state]
    pairs: dict[str, str] = {}
    if layers and norms:
        exactly = lambda paths: f"^({'|'.join(map(re.escape, paths))})$"
        probe = intermediates(
            intermediates(model, exactly(layers)), exactly(norms), inputs=True
        ).source

        def values(params: PyTree, state: PyTree, args: PyTree, kwargs: PyTree) -> PyTree:
            ((_, outputs), inputs), _ = probe(params, state, args, kwargs)
            return outputs, {path: x[0][0] for path, x in inputs.items()}

        arguments = model.params, model.state, args, kwargs
        jaxpr, shapes = jax.make_jaxpr(values, return_shape=True)(*arguments)
        outputs, inputs = jax.tree.unflatten(jax.tree.structure(shapes), jaxpr.jaxpr.outvars)
        paths = {var: path for path, var in outputs.items()}
        pairs = {paths[var]: path for path, var in inputs.items() if var in paths}
        # A module that runs again has "path#1" beside its path.
        base = lambda path: path.partition("#")[0]
        repeated = {base(path) for path in (*outputs, *inputs) if "#" in path}
        pairs = {k: v for k, v in pairs.items() if not {base(k), base(v)} & repeated}
    if not pairs:
        raise WrongArguments(
            "fold_batchnorm of a model in which no BatchNorm takes the output of a layer",
            why="scale and shift would have no weights to go to",
            do="leave it out",
        )
    return pairs


def _folded(model: Model, pairs: dict[str, str]) -> Model:
    """Returns the model without BatchNorms; the arrays of its layers are new."""
    import torch

    from anyjax.torch.core.interop import to_torch
    from anyjax.torch.source import TorchSource, from_torch
    from anyjax.torch.state.snapshot import Snapshot

    assert isinstance(model.source, TorchSource)
    copy = Snapshot.of(model.source.code).module
    arrays = {**model.params, **model.state}
    for path, norm_path in pairs.items():
        layer, norm = copy.get_submodule(path), copy.get_submodule(norm_path)
        mean, variance = (arrays[f"{norm_path}.running_{name}"] for name in ("mean", "var"))
        weight, shift = arrays.get(f"{norm_path}.weight", 1), arrays.get(f"{norm_path}.bias", 0)
        scale = lax.rsqrt(variance + norm.eps) * weight
        arrays[f"{path}.bias"] = (arrays.get(f"{path}.bias", 0) - mean) * scale + shift
        arrays[f"{path}.weight"] = _scaled(arrays[f"{path}.weight"], scale, layer)
        for name in ("weight", "bias"):
            value = to_torch(arrays[f"{path}.{name}"])
            setattr(layer, name, torch.nn.Parameter(value, layer.weight.requires_grad))
        copy.set_submodule(norm_path, torch.nn.Identity())
    folded = from_torch(copy.eval())
    take = lambda values: {name: arrays[name] for name in values}
    return replace(folded, params=take(folded.params), state=take(folded.state))


def _scaled(weight: jax.Array, scale: jax.Array, layer: torch.nn.Module) -> jax.Array:
    """Returns the weight of a layer whose outputs are scaled: [outputs, inputs of a group, ...], or
    [inputs, outputs of a group, ...] of a transposed convolution.
    """
    if not getattr(layer, "transposed", False):
        return weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
    groups, (inputs, outputs, *window) = layer.groups, weight.shape
    grouped = weight.reshape(groups, inputs // groups, outputs, *window)
    return (grouped * scale.reshape(groups, 1, outputs, *[1] * len(window))).reshape(weight.shape)
