"""Every public function of a Model refuses what is none, before it does anything."""

from __future__ import annotations

import importlib
import inspect

import pytest
import torch

import anyjax
from anyjax.errors import WrongArguments

FACADES = ("anyjax", "anyjax.explorer", "anyjax.export", "anyjax.hf", "anyjax.parallel")
FACADES += ("anyjax.train", "anyjax.transforms")


def of_models() -> dict[str, object]:
    """Returns the public functions whose first parameter is called model, and takes a Model."""
    found = {}
    for facade in map(importlib.import_module, FACADES):
        for name in dir(facade):
            value = getattr(facade, name)
            if not name.startswith("_") and inspect.isfunction(value):
                first = next(iter(inspect.signature(value).parameters.values()), None)
                if first is not None and first.name == "model" and first.annotation == "Model":
                    found[f"{value.__module__}.{name}"] = value
    return found


# Their models are what a loss or a user's step hands them.
OF_STEPS = {"anyjax.train.losses.model_loss"}


@pytest.mark.parametrize("name", sorted(of_models().keys() - OF_STEPS))
def test_a_torch_module_is_refused(name):
    function = of_models()[name]
    parameters = inspect.signature(function).parameters.values()
    places = [x for x in parameters if x.default is x.empty and x.kind == x.POSITIONAL_OR_KEYWORD]
    with pytest.raises(WrongArguments, match="of a Linear") as error:
        function(torch.nn.Linear(2, 2), *["x"] * (len(places) - 1))
    assert "from_torch" in str(error.value)


def test_a_missing_model_is_pythons_own_error():
    with pytest.raises(TypeError, match="missing"):
        anyjax.transforms.quantize()
