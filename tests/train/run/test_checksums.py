"""Checksums of states and of what a checkpoint says about them."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from anyjax.errors import BadCheckpoint
from anyjax.saved.checksum import signed
from anyjax.train import restore
from anyjax.train.run.checksums import of_arrays
from tests.train.run.test_checkpoint import fresh, trained

DTYPES = [
    "bool", "int4", "uint8", "int8", "float8_e4m3fn", "float4_e2m1fn", "bfloat16", "float16",
    "int32", "uint32", "float32", "complex64",
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_single_number_is_seen(dtype):
    x = np.array([[0, 1, 0], [1, 0, 1]], np.float32)
    sums = set()
    for place in [None, *np.ndindex(x.shape)]:
        changed = x.copy()
        if place is not None:
            changed[place] = 1 - changed[place]
        sums |= {*of_arrays([jnp.asarray(changed).astype(dtype)]).values()}
    assert len(sums) == x.size + 1


@pytest.mark.parametrize("bit", range(32))
def test_a_single_bit_is_seen(bit):
    x = np.arange(12, dtype=np.uint32).reshape(3, 4)
    y = x.copy()
    y[1, 2] ^= np.uint32(1) << bit
    assert of_arrays(jnp.asarray(x)) != of_arrays(jnp.asarray(y))


def test_numbers_that_change_places_are_seen():
    one, other = jnp.asarray([[1.0, 2.0], [3.0, 4.0]]), jnp.asarray([[1.0, 3.0], [2.0, 4.0]])
    assert of_arrays(one) != of_arrays(other)
    assert of_arrays(jax.random.key(0)) != of_arrays(jax.random.key(1))


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@pytest.mark.parametrize("spec", [(), ("a",), ("a", "b"), (None, ("a", "b"))])
def test_they_are_the_same_on_every_mesh(kind, spec):
    x = np.random.default_rng(0).standard_normal((16, 8), np.float32)
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(kind, kind))
    placed = jax.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
    assert of_arrays(placed) == of_arrays(jnp.asarray(x))


def change(folder, function):
    file = folder / "checkpoints" / "6" / "data" / "metadata"
    data = json.loads(file.read_text())
    file.write_text(json.dumps(function(data)))


def test_a_checkpoint_whose_values_are_others(tmp_path):
    trained(tmp_path, steps=6)
    other = lambda data: signed(
        data | {"checksums": {k: v + (k == ".step") for k, v in data["checksums"].items()}}
    )
    change(tmp_path, other)
    with pytest.raises(BadCheckpoint, match=r"values were changed: \.step") as caught:
        restore(tmp_path, fresh())
    assert "remove that folder" in caught.value.do


def test_a_checkpoint_whose_data_are_others(tmp_path):
    trained(tmp_path, steps=6)
    change(tmp_path, lambda data: data | {"progress": 3})
    with pytest.raises(BadCheckpoint, match="its entries were changed"):
        restore(tmp_path, fresh())
    change(tmp_path, lambda data: signed(data | {"tree": 3}))
    with pytest.raises(BadCheckpoint, match="describes no state"):
        restore(tmp_path, fresh())


def test_a_checkpoint_of_an_earlier_version_has_none(tmp_path):
    trained(tmp_path, steps=6)
    change(tmp_path, lambda data: {k: data[k] for k in ("tree", "progress", "metrics")})
    assert int(restore(tmp_path, fresh()).step) == 6
