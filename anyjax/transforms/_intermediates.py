"""Values inside of a model: activations beside its output, or others in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from anyjax.calls.taps import Tap
from anyjax.model import Model
from anyjax.takes_model import takes_model
from anyjax.typing import Output, PyTree


@dataclass(frozen=True)
class OfValue:
    """An edit that is the same for all modules."""

    function: Callable[[PyTree], PyTree]

    def __call__(self, path: str, value: PyTree) -> PyTree:
        return self.function(value)


@takes_model
def intermediates(model: Model, pattern: str, *, inputs: bool = False) -> Model:
    r"""Returns the outputs of modules beside the model's output, as a pure function.

    Args:
      model: any Model that was written in modules: of torch, or TensorFlow (layers and nodes).
      pattern: regular expression, searched in the paths of modules: ``r"layers\.\d+$"``.
      inputs: return what the modules were called with, ``(args, kwargs)``, instead.

    Returns:
      A Model of ``(output, {path: value})``, values in the order in which the modules ran. A
      module that runs again has ``path#1``, ``path#2`` and so on. Values are what the modules
      returned at that moment, later writes do not change them.

    Raises:
      WrongArguments: no module has such a path, or (in the call) none of them runs.
      Unsupported: the source has no modules, or (in the call) a module runs inside of a loop.

    Example:
      >>> import numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU()))
      >>> out, values = intermediates(model, "^0$")(np.ones((2, 3), np.float32))
      >>> {path: value.shape for path, value in values.items()}
      {'0': (2, 8)}
    """
    return replace(model, source=model.source.tapped(Tap(pattern, inputs=inputs)))


@takes_model
def edit(model: Model, edits: Mapping[str, Callable[[Output], object]]) -> Model:
    r"""Replaces the outputs of modules: for ablation, steering, patching, or a gradient with
    respect to an activation.

    Args:
      model: any Model that was written in modules.
      edits: by regular expression, searched in the paths of modules, a function of JAX arrays: it
        takes the module's output as the module returns it and returns what takes its place. What
        it closes over may be traced where ``model.apply`` is called under the same trace.

    Returns:
      A Model in which these modules return other values.

    Raises:
      WrongArguments: no module has such a path, or (in the call) none of them runs.
      Unsupported: the source has no modules.

    Example:
      >>> import jax, numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU()))
      >>> x = np.ones((2, 3), np.float32)
      >>> float(edit(model, {"^0$": lambda h: 0 * h})(x).sum())
      0.0
      >>> shifted = lambda d: edit(model, {"^0$": lambda h: h + d}).apply(model.params, x).sum()
      >>> jax.grad(shifted)(np.zeros((2, 8), np.float32)).shape  # d output / d activation
      (2, 8)
    """
    source = model.source
    for pattern, function in edits.items():
        source = source.tapped(Tap(pattern, OfValue(function)))
    return replace(model, source=source)
