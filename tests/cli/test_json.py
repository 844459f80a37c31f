"""``--json`` of every verb that reports: standard output is one document, nothing else."""

import json
import math

import pytest

from anyjax.cli import _shown, app
from tests.cli.test_messages import DEMO, ROOT, anyjax

__all__ = ["anyjax"]  # the fixture

ONLY_TEXT = set()  # verbs without --json

SHORT = "--steps", "2", "--length", "32", "--batch", "2", "--lora", "2"
VERBS = {
    "run": ([DEMO], lambda x: x["agree"] and "following runs" in x["seconds"]),
    "generate": (
        [DEMO, "-p", "import os", "-n", "4"],
        lambda x: x["tokens"] == 4 and x["text"].startswith("import os") and x["seconds"]["tokens"],
    ),
    "inspect": ([DEMO], lambda x: x["model"] == "LlamaForCausalLM" and not x["missing"]),
    "explore": ([DEMO, "--no-weights"], lambda x: x["name"] == "LlamaForCausalLM"),
    "verify": ([DEMO], lambda x: x["ok"]),
    "ops": (["aten.linear.default"], lambda x: x[0]["forward"] == "ok"),
    "export": (
        [DEMO, "-o", "{out}/llama", "--platforms", "cpu"],
        lambda x: x["agree"] and sum(f["bytes"] for f in x["files"]) > 3_800_000,
    ),
    "flax": (
        ["tests.flax.codegen.models:MLP", "--input", "2x8", "-o", "{out}/mlp.py"],
        lambda x: x["agree"] and x["lines"] > 10 and x["file"].endswith("mlp.py"),
    ),
    "weights": (
        [DEMO / "model.safetensors", "{out}/weights", "--model", DEMO],
        lambda x: x["matches"][0]["how"] == "name" and x["written"].endswith("weights"),
    ),
    "finetune": (
        [DEMO, "--data", ROOT / "SECURITY.md", "--out", "{out}/tuned", *SHORT],
        lambda x: x["steps"] == 2 and x["loss"] > 0 and x["folder"].endswith("tuned"),
    ),
    "plan": ([DEMO, "--chips", "v6e-8", "--length", "64"], lambda x: x["peak"] > 0),
    "doctor": ([], lambda x: x["works"] and x["packages"]["jax"]["tested"]),
    "explain": (["MissingRng"], lambda x: x["text"].startswith("# MissingRng")),
    "cache": ([], lambda x: x["limit"] == 2**30 and not x["removed"]),
}


def test_every_verb_is_here():
    assert {x.callback.__name__ if x.name is None else x.name for x in app.registered_commands} == {
        *VERBS,
        *ONLY_TEXT,
    }


@pytest.mark.parametrize("verb", VERBS)
def test_json(anyjax, tmp_path, verb):
    arguments, holds = VERBS[verb]
    code, out, err = anyjax(verb, *(str(x).format(out=tmp_path) for x in arguments), "--json")
    assert code == 0, err
    about = json.loads(out, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert holds(about), out


def test_a_dry_run(anyjax, tmp_path):
    options = "--data", ROOT / "SECURITY.md", "--out", tmp_path / "x", "--length", "32", "--dry-run"
    code, out, err = anyjax("finetune", DEMO, *options, "--json")
    assert code == 0, err
    assert json.loads(out)["memory"]["state"] > 3_800_000


def test_source_instead_of_a_file(anyjax):
    module = "tests.flax.codegen.models:MLP", "--input", "2x8", "--no-check"
    code, out, err = anyjax("flax", *module, "--json")
    assert code == 0, err
    about = json.loads(out)
    assert "class MLP(nnx.Module):" in about["source"] and not about["checked"]
    assert "file" not in about


def test_numbers_that_json_has_not(capsys):
    import numpy as np

    _shown.as_json({"x": [math.nan, np.float32("inf"), np.float32(0.5), np.int64(3)], 4: ()})
    assert json.loads(capsys.readouterr().out) == {"x": [None, None, 0.5, 3], "4": []}
