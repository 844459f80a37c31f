"""The call of a pipeline as a module: its own Python code, whose components are traced once."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any

import diffusers
import torch
from torch.overrides import TorchFunctionMode

from anyjax.diffusers import tokens
from anyjax.diffusers.guidance import scales
from anyjax.diffusers.tokens import Record, Tokenizer
from anyjax.diffusers.traced_once import TracedOnce
from anyjax.torch.core.lifting import is_traced
from anyjax.typing import PyTree

HOST = ("safety_checker",)  # what looks at the pictures, outside of the program
METHODS = ("forward", "decode")  # of components, which are traced once each


class Parts:
    """The pieces of a pipeline, which a trace copies and never looks into."""

    def __init__(self, pipeline: Any):
        modules, tokenizers, schedulers = {}, {}, {}
        for name, component in pipeline.components.items():
            if isinstance(component, torch.nn.Module) and name not in HOST:
                modules[name] = component
            elif _tokenizes(component):
                tokenizers[name] = component
            elif component is not None and name not in HOST:
                schedulers[name] = copy.deepcopy(component)
        self.modules: dict[str, torch.nn.Module] = modules
        self.tokenizers: dict[str, Any] = tokenizers
        self.schedulers: dict[str, Any] = schedulers  # and the like
        self.shell = copy.copy(pipeline)
        vars(self.shell).update(
            dict.fromkeys((*modules, *HOST)), _progress_bar_config={"disable": True}
        )
        self.call = inspect.unwrap(type(pipeline).__call__)
        self.once = {
            (name, method): TracedOnce(name, module, method)
            for name, module in modules.items()
            for method in METHODS
            if method == "forward" or (hasattr(module, method) and hasattr(module, "encode"))
        }

    def pipeline(self, results: Iterator[Record]) -> Any:
        """Returns a pipeline without modules, whose schedulers are as they were."""
        pipe = copy.copy(self.shell)
        attributes = vars(pipe)
        attributes |= {name: copy.deepcopy(x) for name, x in self.schedulers.items()}
        for name, tokenizer in self.tokenizers.items():
            attributes[name] = Tokenizer(name, tokenizer, results)
        for name, method in _under_no_grad(type(pipe)):
            attributes[name] = types.MethodType(method, pipe)
        return pipe


class Sampling(torch.nn.Module):
    """Runs ``pipeline(...)``, which asks for no gradients, as code that has them.

    Its children are the pipeline's modules, by their names in it.
    """

    def __init__(self, pipeline: diffusers.DiffusionPipeline):
        super().__init__()
        self.parts = Parts(pipeline)
        self._modules |= self.parts.modules
        self.training = any(x.training for x in self.parts.modules.values())

    def forward(self, tokenized: tuple[Record, ...] = (), **options: PyTree) -> Any:
        """Returns the output of the pipeline with these options of its call."""
        pipe = self.parts.pipeline(iter(tokenized))
        vars(pipe).update(self._modules)
        _end_at_the_loop(pipe)
        try:
            with self._calling_once(), AsArrays():
                return tokens.run(lambda: self.parts.call(pipe, **scales(options)))
        finally:
            for name in self.parts.schedulers:  # no circles: their tensors belong to the trace
                vars(vars(pipe)[name]).clear()
            vars(pipe).clear()

    @contextlib.contextmanager
    def _calling_once(self) -> Iterator[None]:
        replaced = []
        for (name, method), once in self.parts.once.items():
            module: Any = self._modules[name]
            vars(module)[method] = functools.partial(once, module)
            replaced.append((vars(module), method))
        try:
            yield
        finally:
            for attributes, method in replaced:
                attributes.pop(method, None)


class AsArrays(TorchFunctionMode):
    """Leaves tensors of the trace as they are where pipelines make arrays of numpy for the end."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is torch.Tensor.numpy and is_traced(args[0]):
            return args[0]
        return function(*args, **(kwargs or {}))


def _end_at_the_loop(pipe: Any) -> None:
    """Ends a run that records tokens where the scheduler is asked for its steps."""
    for component in vars(pipe).values():
        if hasattr(component, "set_timesteps"):
            original = component.set_timesteps

            @functools.wraps(original)
            def set_timesteps(*args, original=original, **kwargs):
                tokens.encoded()
                return original(*args, **kwargs)

            component.set_timesteps = set_timesteps


def _under_no_grad(kind: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yields the methods of a pipeline without the ``torch.no_grad`` around them."""
    for cls in reversed(kind.__mro__):
        if not cls.__module__.startswith("diffusers.pipelines"):
            continue
        for name, function in vars(cls).items():
            if isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__"):
                yield name, inspect.unwrap(function)


def _tokenizes(component: object) -> bool:
    """Returns whether a component makes numbers of texts."""
    from transformers import PreTrainedTokenizerBase, ProcessorMixin

    return isinstance(component, (PreTrainedTokenizerBase, ProcessorMixin))
