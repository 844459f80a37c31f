"""Programs for chips that are not here: what is narrow and what is traced, rows, one compiler."""

import json
import os
import subprocess
from pathlib import Path

import jax
import pytest
import torch

pytest.importorskip("transformers")

from proof import chips, records, tables
from proof.comparison import NotApplicable

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".compat" / "compilers" / "bin" / "python"


class Net(torch.nn.Module):
    _keep_in_fp32_modules_strict = frozenset({"router"})

    def __init__(self):
        super().__init__()
        self.inner, self.router = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("angles", torch.zeros(3), persistent=False)
        self.register_buffer("count", torch.zeros(3, dtype=torch.long))

    def forward(self, x, ids):
        return self.inner(x).float() + self.router(x.float()) + self.mean + ids.sum()


class Sizes(Net):
    """The values of an input decide a shape; ``sizes``: those of a weight."""

    def __init__(self, sizes="ids"):
        super().__init__()
        self.sizes = sizes

    def forward(self, x, ids):
        values = ids if self.sizes == "ids" else (self.inner.weight[0] > 0).long()
        return self.inner(x)[: len(values.nonzero().unbind())]


INPUTS = {"x": torch.ones(3, 3), "ids": torch.tensor([1, 2])}


def traced(module, inputs=INPUTS, places=(0,)):
    jaxpr = chips.trace(module, inputs, places, jax.devices()[0]).jaxpr
    return [x.aval.dtype.name for x in jaxpr.jaxpr.outvars], len(jaxpr.jaxpr.invars)


def test_narrow_as_transformers_loads():
    module, inputs = chips.narrow(net := Net(), INPUTS)
    dtypes = {k: x.dtype for k, x in (*module.named_parameters(), *module.named_buffers())}
    narrow = {k for k, dtype in dtypes.items() if dtype == torch.bfloat16}
    assert narrow == {"inner.weight", "inner.bias", "mean"}
    assert inputs["x"].dtype == torch.bfloat16 and inputs["ids"].dtype == torch.long
    assert net.inner.weight.dtype == torch.float32


def test_loss_and_gradients_or_outputs_alone():
    dtypes, with_ids = traced(*chips.narrow(Net(), INPUTS))
    assert sorted(dtypes) == ["bfloat16"] * 2 + ["float32"] * 3
    outputs, _ = traced(Net(), places=None)
    assert outputs == ["float32"]
    dtypes, without_ids = traced(Sizes())
    assert len(dtypes) == 5 and without_ids == with_ids - 1


def test_what_says_nothing():
    with pytest.raises(NotApplicable, match="weights decide shapes: DataDependent"):
        traced(Sizes("weights"))
    with pytest.raises(NotApplicable, match="torch itself: RuntimeError"):
        traced(Net(), INPUTS | {"x": torch.ones(3, 4)})


class Fake:
    """A worker of the results that it is made with."""

    def __init__(self, **results):
        self.results = results

    def run(self, model_type, cells):
        return {"class": "Net", "parameters": 3} | {x: self.results[x.split()[0]] for x in cells}


def test_rows_and_what_is_pending(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(records, "versions", lambda *packages: "jax 1")
    path = tmp_path / chips.FILE
    narrow = ["v6e bfloat16", "h100 bfloat16"]
    chips.compile_type(Fake(v6e="ok", h100="no: Error: why"), "a", narrow, path)
    chips.compile_type(Fake(v6e="ok: the forward pass alone"), "a", ["v6e float32"], path)
    (row,) = records.read(path)
    assert [row[cell] for cell in chips.CELLS] == [
        "ok", "ok: the forward pass alone", "no: Error: why", "",
    ]  # fmt: skip
    assert row["command"].endswith("python -m proof.chips --types a --again") and row["date"]
    assert "a 0 {'h100 bfloat16': 'no: Error: why'}\na 0 ok" in capsys.readouterr().out
    assert chips.pending(path, ["a", "b"], chips.CELLS) == {
        "a": ["h100 float32"], "b": [*chips.CELLS],
    }  # fmt: skip


def test_the_cell_of_a_chip():
    reasons = tables.Reasons("x")
    cell = lambda *dtypes: tables.chip_cell(
        {"type": "a"} | dict(zip(("v6e bfloat16", "v6e float32"), dtypes)), "v6e", reasons
    )
    assert (cell("ok", "ok"), cell("", ""), cell()) == ("ok", "", "")
    assert cell("ok", "") == "ok bfloat16"
    assert cell("ok", "no: why") == "ok bfloat16, [no float32](#x-1)"
    assert cell("no: why", "no: why") == "[no](#x-1)"
    assert cell("ok: alone", "n/a: x") == "[ok bfloat16](#x-2), [n/a float32](#x-3)"
    assert reasons.page().startswith("(x-1)=\n1. `no: why`\n   - v6e float32, v6e: a")


def test_counts_are_of_types_that_are_built(tmp_path, monkeypatch):
    built = tables.built()
    row = {"type": built[0]["type"], "v6e bfloat16": "ok: alone", "h100 float32": "no: why"}
    unbuilt = {"type": "not a type", "v6e bfloat16": "ok"}
    chips.save(tmp_path / chips.FILE, row, unbuilt, columns=chips.COLUMNS)
    monkeypatch.setattr(tables, "built", lambda: built)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    counts = tables.counts_of_chips()
    assert counts["v6e bfloat16"] == {"ok": 1, "": len(built) - 1}
    assert counts["h100 float32"] == {"no": 1, "": len(built) - 1}
    assert counts["v6e float32"] == {"": len(built)}


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_type_for_a_tpu(tmp_path):
    if not PYTHON.exists():
        pytest.skip("the compilers are not here: make .compat/compilers/.ready")
    path = tmp_path / chips.FILE
    command = ["-W", "ignore", "-m", "proof.chips", "--types", "gpt2", "--targets", "v6e-1"]
    command += ["--dtypes", "bfloat16", "--out", str(path)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))}
    run = [str(PYTHON), *command]
    out = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr[-3000:]
    (row,) = records.read(path)
    assert row["v6e bfloat16"] == "ok" and row["h100 bfloat16"] == "", json.dumps(row)
    assert "libtpu" in row["versions"]
