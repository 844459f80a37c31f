"""transformers' own exporters write what anyjax reads, and run it."""

from __future__ import annotations

import runpy
import sys

import pytest
import torch

import anyjax
from anyjax.errors import BadCheckpoint, IncompatibleVersion, Unsupported
from tests.models.tiny import gpt2, ids
from tests.tolerance import assert_close

exporters = pytest.importorskip("transformers.exporters")
from transformers.exporters import AutoExportConfig, AutoHfExporter, ExportedModel  # noqa: E402

from anyjax.hf.exporters import JaxConfig, StableHLOConfig  # noqa: E402

pytestmark = pytest.mark.sample(every=2)

FORMATS = {"jax": JaxConfig, "stablehlo": StableHLOConfig}


@pytest.fixture(autouse=True)
def _registered():
    anyjax.hf.register_exporters()
    anyjax.hf.register_exporters()  # says nothing


def exported(export_format, model, inputs, **options):
    config = FORMATS[export_format](**options)
    return AutoHfExporter.from_config(config).export(model, dict(inputs), config)


@pytest.fixture(scope="module")
def model():
    return gpt2()


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("export_format", FORMATS)
def test_outputs_are_the_models_before_and_after_saving(export_format, cache, model, tmp_path):
    inputs = {"input_ids": ids(), "use_cache": cache}
    with torch.no_grad():
        want = model(**inputs)
    memory = exported(export_format, model.train(), inputs)
    assert model.training
    model.eval()
    for _ in range(2):  # over an earlier export, too
        memory.save_pretrained(tmp_path)
    for program in (memory, ExportedModel.from_pretrained(tmp_path)):
        got = program(input_ids=ids(), attention_mask=None)  # it was not exported, and is dropped
        assert type(got) is type(want)
        assert_close(got.logits, want.logits, reduction=200)
        assert [*got] == [*want]  # transformers calls it past_key_values, or cache
        assert len(want) == 1 + cache
        if cache:
            assert_close(*(x.past_key_values.layers[1].keys for x in (got, want)), reduction=200)


@pytest.mark.parametrize("export_format", FORMATS)
def test_sizes_may_vary(export_format, model, tmp_path):
    options = {"shapes": {"input_ids": "batch, length"}, "constraints": ["length <= 64"]}
    inputs = {"input_ids": ids(), "use_cache": False}
    exported(export_format, model, inputs, **options, platforms=["cpu"]).save_pretrained(tmp_path)
    program = ExportedModel.from_pretrained(tmp_path)
    for text in (ids(4, 3), ids(12, 1)):
        with torch.no_grad():
            assert_close(program(input_ids=text).logits, model(text).logits, reduction=200)


def test_anyjax_reads_what_is_written(model, tmp_path):
    inputs, text = {"input_ids": ids(), "use_cache": False}, ids().int().numpy()
    with torch.no_grad():
        want = model(**inputs).logits
    for name in FORMATS:
        exported(name, model, inputs).save_pretrained(tmp_path / name)
    saved = anyjax.load(tmp_path / "jax")
    assert_close(saved(input_ids=text, use_cache=False).logits, want, reduction=200)
    assert saved.params.keys() == anyjax.from_torch(model).params.keys()
    file = tmp_path / "stablehlo" / "model.stablehlo"
    with pytest.raises(BadCheckpoint, match=r"from_stablehlo\(.*model.stablehlo"):
        anyjax.load(file.parent)
    program = anyjax.from_stablehlo(file)
    assert_close(program(input_ids=text), {"logits": want}, reduction=200)


def test_configs_are_registered():
    config = AutoExportConfig.from_dict({"export_format": "jax", "constraints": ["n < 3"]})
    assert type(config) is JaxConfig
    assert config.to_dict()["constraints"] == ["n < 3"]


def test_what_is_refused(model):
    exporter = AutoHfExporter.from_config({"export_format": "jax"})
    with pytest.raises(Unsupported, match="generate="):
        exporter.export_for_generation(model, {"input_ids": ids()}, {})
    with pytest.raises(Unsupported, match="on cuda"):
        exporter.export(model, {"input_ids": ids()}, {}).to("cuda")


def test_a_transformers_without_exporters(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.exporters", None)
    with pytest.raises(IncompatibleVersion, match="transformers' exporters"):
        runpy.run_path(anyjax.hf.exporters.__file__)
