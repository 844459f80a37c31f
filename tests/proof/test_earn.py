"""Rows and passes are switched off and on again, and what needs them is told."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.torch.core.schema import aten, table
from proof import earn

X = np.linspace(-4, 4, 9, dtype=np.float32)


def test_a_row_is_off_and_on_again():
    function = lambda x: torch.nn.functional.hardswish(x)
    row = table[aten.hardswish.default]
    want = anyjax.from_torch(function)(X)
    with earn.noted(table) as seen:
        anyjax.from_torch(function)(X)
    assert aten.hardswish.default in seen
    with earn.without(table, [aten.hardswish.default]), earn.noted(table) as seen:
        np.testing.assert_allclose(anyjax.from_torch(function)(X), want, rtol=1e-6)
    assert aten.hardswish.default not in seen
    assert table[aten.hardswish.default] is row


def test_equations_of_inner_programs_count():
    assert earn.equations(lambda x: jnp.sin(jnp.cos(x)), X) == 2
    assert earn.equations(lambda x: jnp.where(x > 0, x, 0), X) > 1


@pytest.mark.parametrize(
    ("op", "words"),
    [(aten.logit.default, "equations, not"), (aten.mul.Tensor, "MissingOps")],
)
def test_rows_that_are_needed(op, words):
    from tests.conformance import op_db

    entries = [e for e in op_db.op_db if e.aten_name == op._schema.name.split("::")[1]]
    assert words in earn._torch_needs(table, [op], entries[:1])


def test_the_passes_are_there():
    import importlib

    for name in earn.PASSES:
        home, attribute = name.rsplit(".", 1)
        owner = importlib.import_module(home.removesuffix(".MaskSimplifier"))
        owner = owner.MaskSimplifier if home.endswith("Simplifier") else owner
        assert hasattr(owner, attribute)
