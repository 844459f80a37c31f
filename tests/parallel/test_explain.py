"""What a plan is said to do."""

import jax
import numpy as np
import torch

import anyjax
from anyjax.parallel import explain


def told():
    layers = torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8), torch.nn.Linear(8, 7)
    model = anyjax.from_torch(torch.nn.Sequential(*layers))
    mesh = jax.make_mesh((8,), ("model",))
    return explain(model, mesh, "tp", np.ones((4, 8), np.float32))


def test_numbers():
    found = told()
    rows = {r.name: r for r in found.rows}
    assert rows["0.weight"].per_device * 8 == rows["0.weight"].bytes == 8 * 64 * 4
    assert found.traffic["all-reduce"].calls >= 1
    assert found.traffic["all-reduce"].bytes >= 4 * 8 * 4
    assert found.arguments >= sum(r.per_device for r in found.rows)


def test_what_stays_whole_is_marked():
    """7 does not divide, and 8 inputs of it are the features that nothing divides."""
    found = told()
    marked = [r.name for r in found.replicated]
    assert "0.weight" not in marked
    assert marked == ["3.weight"]
    assert found.replicated[0].remark.endswith("the plan does not name it")
    assert "<- on every device: the plan does not name it" in str(found)


def test_sizes_that_do_not_divide_are_told():
    model = anyjax.from_torch(torch.nn.Linear(9, 7))
    found = explain(model, jax.make_mesh((8,), ("x",)), "fsdp", np.ones((4, 9), np.float32))
    assert [r.remark for r in found.replicated] == [
        "on every device: [8] divide none of its dimensions"
    ]


def test_text_and_page(tmp_path):
    found = told()
    lines = str(found).splitlines()
    assert lines[0].split() == ["name", "shape", "spec", "bytes/device"]
    assert any(x.startswith("0.weight") and "[64, 8]" in x for x in lines)
    assert any(x.startswith("all-reduce") for x in lines)
    found.save(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert page.count("<tr>") == len(found.summary()) + 1 + len(found.rows)  # with its header
    assert "0.weight" in page and "width:12.5%" in page
