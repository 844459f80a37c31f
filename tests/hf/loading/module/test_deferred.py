"""Tensors that are on disk: whatever torch does to them comes out as if they were in memory."""

import mmap
import platform
import re
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.hf.loading.find.checkpoint import stored_in
from anyjax.hf.loading.module.deferred import (
    LIBC,
    PIECE,
    Node,
    Reader,
    _populate,
    from_file,
    read_all,
)

pytestmark = pytest.mark.sample(every=2)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same tensors, deferred and in memory."""
    file = tmp_path_factory.mktemp("deferred") / "model.safetensors"
    torch.manual_seed(0)
    whole = {
        "a": torch.randn(6, 4),
        "b": torch.randn(6, 4),
        "c": torch.arange(3.0).bfloat16(),
        "scalar": torch.tensor(2.5),
        "none": torch.empty(0, 3),
        "flags": torch.tensor([True, False]),
        "small": torch.randn(5).to(torch.float8_e4m3fn),
    }
    save_file(whole, file)
    reader = Reader()
    yield {k: from_file(v, reader) for k, v in stored_in(file).items()}, whole
    reader.close()


STEPS = {
    "as it is": lambda t: t["a"],
    "cast": lambda t: t["a"][...].to(device="cpu", dtype=torch.bfloat16),
    "scalar": lambda t: t["scalar"][...],
    "empty": lambda t: t["none"].to(torch.float16),
    "bool": lambda t: t["flags"],
    "float8": lambda t: t["small"].float(),
    "stack": lambda t: torch.stack([t["a"], t["b"]]),
    "cat and cast": lambda t: torch.cat([t["a"], t["b"]], dim=1).half(),
    "chunks": lambda t: [c.contiguous() for c in torch.chunk(t["a"], 3)],
    "split and cat": lambda t: torch.cat(torch.split(t["a"], [1, 5])[::-1]),
    "transpose": lambda t: t["a"].transpose(0, 1).contiguous().view(2, 12),
    "rope": lambda t: t["a"].view(2, 3, 4).transpose(1, 2).reshape(6, 4),
    "with a tensor": lambda t: t["a"] + torch.ones(4),
    "into a tensor": lambda t: torch.zeros(6, 4).copy_(t["a"]),
    "parameter": lambda t: torch.nn.Parameter(t["a"]).detach(),
}


def kept():
    """The values of an operator's several results that still wait to be read."""
    return (node := Node.keeper()) and node.results


@pytest.mark.parametrize("name", STEPS)
def test_the_same_values(name, pair):
    deferred, whole = pair
    got, want = STEPS[name](deferred), STEPS[name](whole)
    for x, y in zip(*(v if isinstance(v, list) else [v] for v in (got, want)), strict=True):
        assert (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride())
        assert torch.equal(read_all(x).float(), y.float())
    assert not kept()


def test_a_part(pair):
    deferred, whole = pair
    index = (slice(2, 5), slice(1, 3))
    cast = deferred["a"].half()
    assert cast.sliced
    assert torch.equal(cast.read(index), whole["a"][index].half())
    joined = torch.cat([deferred["a"], deferred["b"]])
    assert not joined.sliced
    assert torch.equal(joined.read(index), torch.cat([whole["a"], whole["b"]])[index])


def test_questions_about_values_are_answered(pair):
    deferred, _ = pair
    assert torch.equal(deferred["a"], deferred["a"])
    assert not torch.equal(deferred["a"], deferred["b"])
    assert deferred["scalar"].item() == 2.5


def row_of_a_parameter(t):
    parameter = torch.nn.Parameter(t["a"])
    with torch.no_grad():
        parameter[1].zero_()
    return [parameter.detach(), t["a"]]


def read_before(t):
    computed = t["a"] + t["b"]
    cast, view, doubled = t["a"].half(), t["a"].t(), computed * 2
    t["a"][3:].fill_(-1)
    computed.mul_(0)
    return [t["a"], cast, view, computed, doubled]


WRITES = {
    "whole": lambda t: [t["a"].add_(1), t["a"]],
    "a row": lambda t: [t["a"][2].zero_(), t["a"]],
    "a view of a view": lambda t: [t["a"].t()[1:][0].fill_(3.0), t["a"]],
    "twice": lambda t: [t["a"].mul_(t["b"]), t["a"][0].sub_(1), t["a"]],
    "a row of a parameter": row_of_a_parameter,
    "what was to be computed before": read_before,
    "several at once": lambda t: [torch._foreach_mul_([t["a"], t["b"]], 2.0), t["a"], t["b"]][1:],
    "out=": lambda t: [torch.add(t["a"], t["b"], out=t["a"]), t["a"]],
    "a part, then the whole": lambda t: [t["a"].chunk(2), t["a"].zero_()][0],
}


@pytest.fixture
def fresh(pair):
    """As ``pair``, for one test alone."""
    deferred, whole = pair
    yield {k: v.clone() for k, v in deferred.items()}, {k: v.clone() for k, v in whole.items()}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name, fresh):
    got, want = (WRITES[name](x) for x in fresh)
    for x, y in zip(got, want, strict=True):
        assert torch.equal(read_all(x), y)
    assert not kept()


def test_writes_to_the_file_s_own(tmp_path):
    save_file({"a": torch.ones(3, 2)}, tmp_path / "model.safetensors")
    reader = Reader()
    tensor = from_file(stored_in(tmp_path / "model.safetensors")["a"], reader)
    view, cast_before = tensor.detach(), tensor.half()
    tensor[1].zero_()
    assert tensor.read((slice(1, 3),)).tolist() == [[0, 0], [1, 1]]
    assert view.half().read().tolist() == [[1, 1], [0, 0], [1, 1]]
    assert cast_before.read().tolist() == [[1, 1]] * 3
    reader.close()


def test_writes_to_parts_are_refused(fresh):
    with pytest.raises(Unsupported, match="taken apart"):
        torch.chunk(fresh[0]["a"], 3)[0].zero_()


@pytest.mark.parametrize("libc", [LIBC, None], ids=["populated", "other systems"])
def test_a_tensor_of_several_pieces(libc, tmp_path, monkeypatch):
    monkeypatch.setattr("anyjax.hf.loading.module.deferred.LIBC", libc)
    whole = {"flag": torch.tensor([True]), "a": torch.arange(5 * PIECE // 2 - 3).byte()}
    whole["b"] = torch.arange(5 * PIECE // 8 - 3.0)
    save_file(whole, tmp_path / "model.safetensors")
    reader = Reader()
    tensors = {
        k: from_file(v, reader) for k, v in stored_in(tmp_path / "model.safetensors").items()
    }
    assert torch.equal(tensors["a"].read(), whole["a"])
    assert torch.equal(tensors["a"].read((slice(7, 2 * PIECE),)), whole["a"][7 : 2 * PIECE])
    fill, sizes = Reader._fill, []
    record = lambda *args: (sizes.append(args[-1].nbytes), fill(*args))
    monkeypatch.setattr(Reader, "_fill", record)
    cast = torch.nn.Parameter(tensors["b"][...].bfloat16()).detach()
    assert torch.equal(cast.read(), whole["b"].bfloat16())
    assert torch.equal(cast.read((slice(7, PIECE // 2),)), whole["b"].bfloat16()[7 : PIECE // 2])
    assert max(sizes) == PIECE  # there is no memory for all that is in the file
    reader.close()


KERNEL = [int(x) for x in re.findall(r"\d+", platform.release())[:2]]


@pytest.mark.skipif(
    sys.platform != "linux" or KERNEL < [5, 14], reason="the kernel cannot be asked for pages"
)
def test_pages_are_there_before_they_are_filled():
    import resource

    faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    memory = np.frombuffer(mmap.mmap(-1, 4 * PIECE), np.uint8)[100:]
    _populate(memory.ctypes.data, PIECE)
    before = faults()
    memory[:PIECE].fill(1)
    assert faults() - before < PIECE // mmap.PAGESIZE // 4
    assert not memory[PIECE:].any()


@pytest.mark.parametrize("size", [100, 3 * PIECE])
def test_a_file_that_shrinks(size, tmp_path):
    save_file({"a": torch.ones(size // 4)}, tmp_path / "model.safetensors")
    stored = stored_in(tmp_path / "model.safetensors")["a"]
    reader = Reader()
    tensor = from_file(stored, reader)
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.truncate(stored.offset + size // 2)
    with pytest.raises(BadCheckpoint, match="ends in the middle of a tensor"):
        tensor.read()
    reader.close()


def test_what_nobody_can_ask_for_is_not_kept(pair):
    chunks = torch.chunk(pair[0]["a"], 3)
    read_all(chunks[0])
    assert kept()
    del chunks
    assert not kept()


@pytest.mark.parametrize(
    "index",
    [
        (slice(2, 5), slice(None)),
        (slice(4, None), slice(0, 4)),
        (slice(None), slice(1, 3)),
        (slice(0, 6, 2), slice(None)),
        (slice(3, 3), slice(None)),
        (slice(None), slice(None)),
    ],
)
def test_a_part_is_read_alone(index, pair):
    """Rows by one read, all else from the pages where it lies."""
    sizes, deferred = [], pair[0]["a"]
    stored = deferred.read.args[0]
    reader = Reader(sizes.append)
    got, cast = reader.read(stored, index), reader.read(stored, index, torch.float16)
    reader.close()
    assert torch.equal(got, pair[1]["a"][index])
    assert torch.equal(cast, got.half())
    assert sizes == [got.numel() * 4] * 2
