"""What verify compares besides values: buffers that a call writes, dtypes, parts that never ran."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import anyjax
from anyjax.errors import WrongArguments
from tests.models.tiny import DECODER

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


class Counts(nn.Module):
    """Writes buffers that no output tells of."""

    def __init__(self, rate=0.1, steps=1):
        super().__init__()
        self.inner, self.rate, self.steps = nn.Linear(4, 4), rate, steps
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.inner(x)
        if self.rate:
            self.average.lerp_(y.mean(0), self.rate)
        self.count += self.steps
        return y


class Outer(nn.Module):
    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(0)
        self.counts = Counts(**options)

    def forward(self, x):
        return self.counts(x)


@pytest.mark.parametrize(
    ("model", "reference", "fault"),
    [
        ({"rate": 0.2}, {}, "writes average, which differs"),
        ({"steps": 2}, {}, "writes count, which differs"),
        ({"rate": 0.0}, {}, "writes average, which differs"),
        ({}, {"rate": 0.0}, "writes average, which the reference leaves as it is"),
    ],
)
def test_buffers_that_differ_are_told_of_their_module(model, reference, fault, tmp_path):
    twin = Outer(**reference)
    report = anyjax.verify(anyjax.from_torch(Outer(**model)), X, reference=twin)
    (worst,) = report.faults
    assert worst.path == "counts" and worst.fault.startswith(fault)
    assert not twin.counts.count and not twin.counts.average.any()
    healthy = anyjax.verify(anyjax.from_torch(twin), X)
    assert healthy.ok
    healthy.save_golden(tmp_path / "golden")
    report = anyjax.verify(anyjax.from_torch(Outer(**model)), X, reference=tmp_path / "golden")
    assert [x.path for x in report.faults] == ["counts"]


class Cast(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.dtype = nn.Linear(4, 4).bfloat16(), dtype

    def forward(self, x):
        return self.inner(x.bfloat16()).to(self.dtype), (x > 0).to(torch.int64)


def test_dtypes_of_outputs():
    reference, model = Cast(torch.float32), Cast(torch.bfloat16)
    report = anyjax.verify(anyjax.from_torch(model), X, reference=reference)
    assert report.faults[0].fault == "returns bfloat16, where the reference's is float32"
    assert anyjax.verify(anyjax.from_torch(reference), X).ok


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_fault_below_the_rounding_of_a_narrow_dtype(dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=1e-5)).to(dtype)
    model = anyjax.from_torch(module)
    x = torch.from_numpy(X).to(dtype)
    assert anyjax.verify(model, x).ok
    module[1].eps = 1e-4  # less than the rounding of its outputs
    assert [y.path for y in anyjax.verify(model, x).faults] == ["1"]


class Unused(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2)
        self.spare = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.listed = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU()])

    def forward(self, x):
        return self.attention(*[self.inner(self.listed[0](x))] * 3)[0]


def test_parts_that_never_ran_are_named():
    report = anyjax.verify(anyjax.from_torch(Unused()), X)
    assert report.ok and report.notes == ("not compared, never called: spare, listed.1",)


def test_tokens_of_a_folder_without_a_tokenizer(tmp_path):
    config = transformers.LlamaConfig(**DECODER | {"num_hidden_layers": 1})
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    model = anyjax.from_pretrained(tmp_path)
    ids = np.array([[5, 6, 7]])
    report = anyjax.verify(model, ids)
    assert report.ok and report.predictions is not None
    assert anyjax.verify(model, input_ids=ids.astype(np.int32), use_cache=False).ok


@pytest.mark.parametrize("rows", [(0, 4), (3, 0, 4)])
def test_outputs_without_numbers_are_an_error(rows):
    model = anyjax.from_torch(nn.Sequential(nn.Linear(4, 4)))
    with pytest.raises(WrongArguments, match="no numbers to compare"):
        anyjax.verify(model, np.zeros(rows, np.float32))
