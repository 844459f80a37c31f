"""Dropout in a comparison: torch's masks on both sides, or none at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from anyjax.torch.core import private
from anyjax.typing import PyTree

# Functions that drop values: the place and the name of an argument, and its value without.
ARGUMENTS: dict[Callable, tuple[int, str, object]] = {
    **dict.fromkeys(
        (
            functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d,
            functional.alpha_dropout, functional.feature_alpha_dropout,
        ),
        (2, "training", False),
    ),
    **dict.fromkeys(
        (torch.dropout, torch.dropout_, torch.alpha_dropout, torch.feature_dropout,
         torch.feature_alpha_dropout), (2, "train", False)),
    functional.rrelu: (3, "training", False),
    functional.scaled_dot_product_attention: (4, "dropout_p", 0.0),
    functional.multi_head_attention_forward: (10, "dropout_p", 0.0),
}  # fmt: skip
RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}


class WithoutDropout(TorchFunctionMode):
    """Calls functions that drop values with what keeps them all."""

    def __torch_function__(
        self,
        func: Callable,
        types: tuple,
        args: tuple = (),
        kwargs: dict[str, PyTree] | None = None,
    ) -> PyTree:
        kwargs = kwargs or {}
        if func in RECURRENT:  # the rate comes two places after has_biases, in both of its forms
            place = next(i for i, x in enumerate(args) if isinstance(x, bool)) + 2
            args = (*args[:place], 0.0, *args[place + 1 :])
        if func in ARGUMENTS:
            place, name, value = ARGUMENTS[func]
            if place < len(args):
                args = (*args[:place], value, *args[place + 1 :])
            else:
                kwargs = {**kwargs, name: value}
        return func(*args, **kwargs)


def masked(module: torch.nn.Module) -> frozenset[str]:
    """Returns the paths of the modules that drop values now."""
    drops = lambda x: isinstance(x, private.Dropout) and x.training and x.p
    return frozenset(path for path, x in module.named_modules() if drops(x))


def dropped(module: torch.nn.Module, *args: torch.Tensor) -> torch.Tensor:
    """Returns a dropout module's output with a mask of torch's, whatever mode goes on."""
    with private.DisableTorchFunction():
        return module.forward(*args)


@contextlib.contextmanager
def in_modes(module: torch.nn.Module, modes: Mapping[str, bool]) -> Iterator[None]:
    """Puts submodules in training or evaluation mode, by path, and back."""
    named = {path: x for path, x in module.named_modules() if path in modes}
    original = {path: x.training for path, x in named.items()}
    try:
        for path, x in named.items():
            x.training = modes[path]
        yield
    finally:
        for path, x in named.items():
            x.training = original[path]
