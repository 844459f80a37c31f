"""Axes of meshes by their names."""

import jax
import pytest

from anyjax.errors import WrongArguments
from anyjax.numerics.mesh_axes import batch_axes
from anyjax.parallel.plans.axes import axis


def test_names():
    mesh = jax.make_mesh((2, 2, 2), ("data", "tensor", "ep"))
    assert [axis(mesh, use) for use in ("fsdp", "tp", "expert")] == ["data", "tensor", "ep"]
    assert batch_axes(mesh) == ("data",)


def test_a_single_axis_has_any_name():
    mesh = jax.make_mesh((8,), ("x",))
    assert axis(mesh, "tp") == axis(mesh, "fsdp") == "x"
    with pytest.raises(WrongArguments, match="no axis for expert") as caught:
        axis(mesh, "expert", allow_any_name=False)
    assert "expert, ep" in str(caught.value)
