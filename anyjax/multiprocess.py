"""Several processes, each with devices of its own: arrays that lie on all of them.

JAX runs the same program in each process (``jax.distributed``). An array may then have parts that
this process does not hold; what is put there, and read from there, goes through here. With one
process all of it is ``jax.device_put`` and ``numpy.asarray``.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from anyjax.errors import AnyjaxError, NotWritten, ProcessLost, WrongArguments
from anyjax.typing import PyTree


def leads() -> bool:
    """Returns whether this process is the one that writes files and shows progress.

    Example:
      >>> leads()
      True
    """
    return jax.process_index() == 0


def put(x: object, sharding: Sharding | None) -> jax.Array:
    """Returns an array that every process has, in its place: no process sends anything to another.

    ``jax.device_put`` compares the values of all processes first, which makes them wait for each
    other, in threads for ever.

    Example:
      >>> mesh = jax.make_mesh((jax.device_count(),), ("data",))
      >>> put(np.ones(8), NamedSharding(mesh, PartitionSpec("data"))).sharding.spec
      P('data',)
    """
    if sharding is None or sharding.is_fully_addressable or not is_local(x):
        return jax.device_put(x, sharding)
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        data = put(jax.random.key_data(x), sharding)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
    values = np.asarray(x)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def is_local(x: object) -> bool:
    """Returns whether this process holds all of it.

    Example:
      >>> is_local(np.ones(2)), is_local(jnp.ones(2))
      (True, True)
    """
    return not isinstance(x, jax.Array) or x.is_fully_addressable


def values(x: jax.Array) -> np.ndarray:
    """Returns the whole array, in every process; all of them must ask for it.

    It is gathered on every device, so one array at a time should be.

    Example:
      >>> values(jnp.arange(3))
      array([0, 1, 2], dtype=int32)
    """
    if not is_local(x) and not x.is_fully_replicated:
        assert isinstance(x.sharding, NamedSharding), "other arrays lie in one process"
        everywhere = NamedSharding(x.sharding.mesh, PartitionSpec())
        x = jax.jit(lambda x: x, out_shardings=everywhere)(x)
    return np.asarray(x)


def by_one(
    write: Callable[[dict, dict], None], params: Mapping[str, PyTree], state: Mapping[str, PyTree]
) -> None:
    """``write(params, state)``; arrays of several processes come to the leading one as numpy, which
    alone writes. The others return when it is done.

    Raises:
      NotWritten: in the others, where the leading one raises.

    Example:
      >>> by_one(lambda params, state: print(params), {"a": jnp.ones(2)}, {})
      {'a': Array([1., 1.], dtype=float32)}
    """
    if all(map(is_local, (*params.values(), *state.values()))):
        write(dict(params), dict(state))
        return
    host_values = values if leads() else lambda x: values(x) is None  # let go of at once
    trees = [{k: host_values(x) for k, x in arrays.items()} for arrays in (params, state)]
    error = None
    try:
        write(*trees) if leads() else None
    except Exception as failed:
        error = failed  # the others wait for what comes next
    if gathered([error is not None]).any():
        raise error or NotWritten(
            "process 0 has written nothing",
            where=f"process {jax.process_index()} of {jax.process_count()}",
            why="it writes for all, and has failed",
            do="look at what it says",
        )


def gathered(numbers: object) -> np.ndarray:
    """Numbers of every process, [processes, ...]; none goes on before all have come here.

    Args:
      numbers: 32 bits wide, of the same shape in every process.

    Example:
      >>> gathered([1, 2])
      array([[1, 2]])
    """
    mine = np.asarray(numbers)
    if jax.process_count() == 1:
        return mine[None]
    devices = sorted(jax.devices(), key=lambda d: (d.process_index, d.id))
    firsts = {d.process_index: i for i, d in reversed([*enumerate(devices)])}
    mesh = Mesh(np.array(devices), ("device",))
    rows = np.broadcast_to(mine, (jax.local_device_count(), *mine.shape))
    by_device, everywhere = (NamedSharding(mesh, PartitionSpec(*x)) for x in (["device"], []))
    shape = (len(devices), *mine.shape)
    array = jax.make_array_from_process_local_data(by_device, rows, shape)
    every = np.asarray(jax.jit(jnp.copy, out_shardings=everywhere)(array))
    return every[[firsts[process] for process in sorted(firsts)]]


def is_loss(error: BaseException) -> bool:
    """Returns whether XLA raised it because another process does not answer.

    Example:
      >>> is_loss(ValueError("UNKNOWN: Gloo AllGather failed: Connection closed by peer"))
      True
    """
    text = str(error)
    return any(word in text for word in ("Gloo ", "NCCL", "oordination service", "heartbeat"))


@contextlib.contextmanager
def together(do: str) -> Iterator[None]:
    """Explains the errors that XLA raises in here because another process is gone.

    Raises:
      ProcessLost: it has happened.

    Example:
      >>> with together("start again"):
      ...     pass
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        if jax.process_count() == 1 or isinstance(error, AnyjaxError) or not is_loss(error):
            raise
        raise ProcessLost(
            "another process of this job is gone",
            where=f"process {jax.process_index()} of {jax.process_count()}",
            why=" ".join(str(error).split())[:300],
            do=do,
        ) from error


def checksum(x: Any) -> int:
    """Of an array's values, shape and dtype, 32 bits.

    Example:
      >>> checksum(np.zeros(2)) == checksum(np.zeros(2)) != checksum(np.zeros(3))
      True
    """
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    values = np.ascontiguousarray(x)
    return zlib.crc32(
        values.view(np.uint8).data, zlib.crc32(f"{values.dtype}{np.shape(x)}".encode())
    )


def check_same(arrays: Mapping[str, PyTree], do: str) -> None:
    """Raises where processes have different values of what is to be one array on all of them.

    Args:
      arrays: by name; those that lie on several processes already are left out.
      do: the way out.

    Raises:
      WrongArguments: it names the arrays, in every process.

    Example:
      >>> check_same({"weight": np.ones(2)}, do="set a seed")
    """
    if jax.process_count() == 1:
        return
    sums = {k: checksum(x) for k, x in arrays.items() if is_local(x)}
    names = gathered(np.uint32(zlib.crc32("\n".join(sums).encode())))
    if len({*names.tolist()}) > 1:
        raise WrongArguments(
            f"processes have arrays of different names, this one {', '.join(sums)[:200]}",
            where=f"process {jax.process_index()} of {jax.process_count()}",
            why="all put their parts of the same arrays on their devices",
            do=do,
        )
    checksums = gathered(np.array([*sums.values(), len(sums)], np.uint32))
    if differ := [k for k, column in zip(sums, checksums.T) if len({*column.tolist()}) > 1]:
        others_text = f", and {len(differ) - 4} more" if len(differ) > 4 else ""
        raise WrongArguments(
            f"processes have different values of {', '.join(differ[:4])}{others_text}",
            where=f"process {jax.process_index()} of {jax.process_count()}",
            why="each puts its part on its devices, and all parts are to be of one array",
            do=do,
        )
