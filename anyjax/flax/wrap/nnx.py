"""A model as an nnx module."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
from flax import nnx

from anyjax.calls.initialise import fresh
from anyjax.errors import Unsupported, WrongArguments
from anyjax.flax.wrap.forward import run_with_key
from anyjax.flax.wrap.names import BUFFERS, PARAMS, STATISTICS, Node
from anyjax.flax.wrap.wrapped_model import WrappedModel, class_named, wrap
from anyjax.typing import Output

Streams = nnx.Rngs | nnx.RngStream | None
DROPOUT = "dropout"  # the stream of random numbers, as nnx.Dropout's


class Buffer(nnx.Variable[Any]):
    """State that is neither a parameter nor a statistic of batches: masks, counters, frozen
    parameters.

    Example:
      >>> import torch
      >>> class Counts(torch.nn.Module):
      ...     def __init__(self):
      ...         super().__init__()
      ...         self.register_buffer("calls", torch.zeros(()))
      ...
      ...     def forward(self, x):
      ...         self.calls += 1
      ...         return x * self.calls
      >>> module = anyjax.flax.to_nnx(Counts())
      >>> module(1.0).item(), module(1.0).item(), type(module.calls).__name__
      (1.0, 2.0, 'Buffer')
    """


nnx.register_variable_name(BUFFERS, Buffer)
VARIABLES: dict[str, type[nnx.Variable]] = {
    PARAMS: nnx.Param,
    STATISTICS: nnx.BatchStat,
    BUFFERS: Buffer,
}


class Part(nnx.Module):
    """A submodule of a converted model: its arrays and its own submodules."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Part | nnx.Variable[Any]: ...

    def __getitem__(self, name: str | int) -> Part | nnx.Variable[Any]:
        try:
            return getattr(self, attribute(str(name)))
        except AttributeError:
            raise (IndexError if isinstance(name, int) else KeyError)(name) from None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Returns its own arrays; ``nnx.tabulate`` shows each such call as a row."""
        if args or kwargs:
            raise Unsupported(
                f"a {type(self).__name__} of a converted model does not run alone",
                why="the source's forward calls it from inside of the whole",
                do="convert the source's submodule: anyjax.flax.to_nnx(module.layers[0])",
            )
        return self._arrays()

    def _arrays(self) -> dict[str, jax.Array]:
        attributes = vars(self).items()
        return {k: v.get_value() for k, v in attributes if isinstance(v, nnx.Variable)}


class Module(Part):
    """A converted model as an nnx module; ``to_nnx`` makes it."""

    def __init__(self, wrapped: WrappedModel, params: dict, state: dict, stream: Streams):
        _fill(self, wrapped.tree, {**params, **state}, wrapped)
        self._wrapped = wrapped.without_arrays()
        self.rngs = nnx.data(stream)
        mode = wrapped.model.source.training
        modes = {*mode} if isinstance(mode, tuple) else {mode}
        deterministic = not modes.pop() if len(modes) == 1 else None  # None: only some parts train
        self.deterministic = self.use_running_average = deterministic

    def __call__(self, *args: Any, rngs: Streams | jax.Array = None, **kwargs: Any) -> Output:
        """Runs the forward pass.

        Args:
          *args: as the source's forward takes them.
          **kwargs: the same, by name.
          rngs: an ``nnx.Rngs``, a stream of it or a key for this call, instead of the module's own.

        Returns:
          What the source returns, in its own classes. What the forward pass writes to the state
          is in the module's variables.

        Raises:
          MissingRng: it draws random numbers and there is no stream.
          WrongArguments, MissingOps, DataDependent: see anyjax.errors.
        """
        arrays, places = self._arrays_and_places()
        model = self._wrapped.with_arrays(arrays, self.deterministic, self.use_running_average)
        draw = lambda: _draw(self.rngs if rngs is None else rngs)
        do = "anyjax.flax.to_nnx(model, rngs=nnx.Rngs(dropout=0)), or module(..., rngs=...)"
        result = run_with_key(model, args, kwargs, draw, do, self._wrapped.settings)
        for name, value in result.written.items():
            if name in places:
                part, key = places[name]
                getattr(part, key).set_value(value)
            else:
                setattr(self, attribute(name), Buffer(value))
        return result.out

    def set_view(
        self, deterministic: bool | None = None, use_running_average: bool | None = None
    ) -> None:
        """Sets the modes; ``nnx.view`` calls it.

        Args:
          deterministic: if True, dropout is off, and whatever else training changes.
          use_running_average: if True, statistics of batches are the stored ones.
        """
        if deterministic is not None:
            self.deterministic = deterministic
        if use_running_average is not None:
            self.use_running_average = use_running_average

    def _arrays_and_places(self) -> tuple[dict[str, jax.Array], dict[str, tuple[Part, str]]]:
        """Returns the current arrays by the source's names, and (part, attribute) of each."""
        arrays: dict[str, jax.Array] = {}
        places: dict[str, tuple[Part, str]] = {}
        for node in self._wrapped.tree.nodes():
            part: Any = functools.reduce(getattr, map(attribute, node.path), self)
            if isinstance(part, Part):
                in_part = self._arrays() if part is self else part()
                keys = {leaf.name: attribute(leaf.path[-1]) for leaf in node.leaves}
                arrays |= {name: in_part[key] for name, key in keys.items() if key in in_part}
                places |= {name: (part, key) for name, key in keys.items() if key in in_part}
        converted = {key for part, key in places.values() if part is self}
        for key, variable in vars(self).items():  # state that the forward pass added
            if isinstance(variable, Buffer) and key not in converted:
                arrays[key], places[key] = variable.get_value(), (self, key)
        return arrays, places


def to_nnx(model: object, *, rngs: Streams = None, pretrained: bool | None = None) -> Module:
    """Makes an nnx module of a model.

    Its variables stand under the source's own names, ``module.layers[0].self_attn.q_proj.weight``:
    params are ``nnx.Param``, statistics of batches ``nnx.BatchStat``, everything else
    ``anyjax.flax.Buffer``. None is shared: tied weights stand under their first name. A name that
    nnx has itself (``train``) ends in an underscore. ``train()``, ``eval()`` and ``nnx.view`` set
    the mode, also from a module around it; at first it has the model's own.

    Args:
      model: an ``anyjax.Model``, or what ``anyjax.convert`` makes one of: a torch module, a Keras
        model, a StableHLO artifact.
      rngs: ``nnx.Rngs``, or a stream of it for dropout alone. The stream ``dropout`` is what the
        forward pass draws from: one key for each call in training mode, else where it asks for
        one. The stream ``params`` makes fresh weights.
      pretrained: whether the module has the model's weights; False makes fresh ones. None: fresh
        ones if ``rngs`` has a stream for params, as every module of nnx does.

    Returns:
      The module. Pretrained arrays are the model's own, not copies: a step that donates them takes
      them from ``model``, too. Fresh ones come from the source's own initialisers; a parameter
      that none of them makes keeps its value, and a warning names it.

    Raises:
      WrongArguments: ``model`` is no model; or fresh weights without a stream for them.

    Example:
      >>> import numpy as np, torch
      >>> from flax import nnx
      >>> module = anyjax.flax.to_nnx(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))
      >>> module[0].weight.shape, module(np.ones((5, 3), np.float32)).shape
      ((2, 3), (5, 2))
      >>> loss = lambda module, x: module(x).sum()
      >>> nnx.grad(loss)(module, np.ones((5, 3), np.float32))["0"]["bias"].shape
      (2,)
    """
    wrapped = wrap(model, "to_nnx")
    stream = _stream(rngs)
    fits = isinstance(rngs, nnx.Rngs) and not pretrained
    key = _draw(rngs, PARAMS) if fits else None
    if pretrained is False and key is None:
        raise WrongArguments(
            "fresh weights without a key",
            why="pretrained=False, and rngs has no stream for params",
            do="anyjax.flax.to_nnx(model, rngs=nnx.Rngs(0), pretrained=False)",
        )
    model = wrapped.model
    arrays = (model.params, model.state) if key is None else fresh(model, key)
    return class_named(wrapped.tree.kind, Module)(wrapped, *arrays, stream)


def attribute(name: str) -> str:
    """Returns the attribute name of a child or an array."""
    return f"{name}_" if hasattr(Module, name) or name in _RESERVED else name


_RESERVED = {"deterministic", "use_running_average", "rngs", "_wrapped"}


def _fill(part: Part, node: Node, arrays: dict[str, Any], wrapped: WrappedModel) -> None:
    for leaf in node.leaves:
        variable = VARIABLES[leaf.collection](arrays[leaf.name])
        setattr(part, attribute(leaf.path[-1]), variable)
    for name, child in (_layers(node, wrapped) or dict(node.children)).items():
        setattr(part, attribute(name), _build(child, arrays, wrapped))


def _build(node: Node, arrays: dict[str, Any], wrapped: WrappedModel) -> nnx.Module:
    """Builds a part, or a list if all children are numbered, as in torch's ModuleList."""
    if layers := _layers(node, wrapped):
        return nnx.List([_build(child, arrays, wrapped) for child in layers.values()])
    part = class_named(node.kind, Part)()
    _fill(part, node, arrays, wrapped)
    return part


def _layers(node: Node, wrapped: WrappedModel) -> dict[str, Node]:
    """Returns the children in order if all are numbered from 0, else none. Children without arrays
    (activations) are included.
    """
    children, kinds = dict(node.children), wrapped.kinds.get(node.path, {})
    names = [str(i) for i in range(len(children.keys() | kinds.keys()))]
    if node.leaves or not children or children.keys() | kinds.keys() != {*names}:
        return {}
    empty = lambda name: Node(kinds[name], (*node.path, name), (), ())
    return {name: children.get(name) or empty(name) for name in names}


def _stream(rngs: object) -> Any:
    """Returns a stream for the module alone, None without ``rngs``."""
    if not isinstance(rngs, (nnx.Rngs, nnx.RngStream, type(None))):
        raise WrongArguments(
            f"rngs is a {type(rngs).__name__}",
            why="a module keeps a stream of random numbers",
            do="give nnx.Rngs(0), or nnx.Rngs(dropout=0) for dropout alone",
        )
    stream = _stream_of(rngs, DROPOUT)
    return None if stream is None else stream.fork()


def _draw(rngs: Any, stream: str = DROPOUT) -> jax.Array | None:
    rngs = _stream_of(rngs, stream)
    return rngs() if callable(rngs) else rngs


def _stream_of(rngs: object, name: str) -> Any:
    """Returns a stream of an ``nnx.Rngs``, None without it; everything else is itself."""
    if not isinstance(rngs, nnx.Rngs):
        return rngs
    try:
        return rngs[name]
    except KeyError:
        return None
