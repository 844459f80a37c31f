"""What of generation is saved as one program, and what is refused before anything is written."""

import re

import jax
import numpy as np
import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from tests.hf.generation.test_generate import built, padded
from tests.models import tiny

pytestmark = pytest.mark.sample(every=10)

IDS, MASK = (x.numpy() for x in padded())


class Own(LogitsProcessor):
    def __call__(self, ids, scores):
        return scores


@pytest.mark.parametrize(
    "options, said",
    [
        (dict(num_beams=2), "num_beams"),
        (dict(return_dict_in_generate=True), "return_dict_in_generate"),
        (dict(prompt_lookup_num_tokens=2), "prompt_lookup_num_tokens"),
        (dict(guidance_scale=2.0), "guidance_scale"),
        (dict(logits_processor=LogitsProcessorList([Own()])), "the logits processor Own"),
        (dict(encoder_repetition_penalty=1.5), "depend on the prompt"),
        (dict(no_such_option=1), "no_such_option"),
    ],
)
def test_more_than_one_program_is_refused(tmp_path, options, said):
    with pytest.raises(Unsupported, match=said):
        built("llama")[1].save(tmp_path / "m", IDS, generate=dict(max_new_tokens=4) | options)
    assert not (tmp_path / "m").exists()


def test_models_that_do_not_generate(tmp_path):
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    with pytest.raises(Unsupported, match="generates no text"):
        model.save(tmp_path / "m", np.ones((1, 3), "f"), generate=dict(max_new_tokens=4))


def test_an_example_is_needed(tmp_path):
    model = built("llama")[1]
    model(input_ids=IDS, use_cache=False)
    with pytest.raises(WrongArguments, match="without an example of input_ids"):
        model.save(tmp_path / "m", generate=dict(max_new_tokens=4))


def test_shapes_alone_are_an_example(tmp_path):
    model = built("llama")[1]
    options = dict(max_new_tokens=4, do_sample=False)
    struct = jax.ShapeDtypeStruct((2, 6), np.int32)
    model.save(tmp_path / "m", struct, use_cache=False, generate=options)
    ids = tiny.ids(6, 2).numpy()
    got = anyjax.load(tmp_path / "m").generate(ids)
    np.testing.assert_array_equal(got, model.generate(ids, **options))
    names = jax.ShapeDtypeStruct(jax.export.symbolic_shape("batch, length"), np.int32)
    with pytest.raises(Unsupported, match="the cache is made for a batch"):
        model.save(tmp_path / "n", names, use_cache=False, generate=options)


def test_the_program_holds_no_weights_and_runs_everywhere(tmp_path):
    model = built("llama")[1]
    model.save(tmp_path / "m", IDS, use_cache=False, generate=dict(max_new_tokens=4))
    program = anyjax.load(tmp_path / "m").source.extras["generate"][1]
    assert program.platforms == ("cpu", "cuda", "tpu")
    assert "stablehlo.while" in program.mlir_module()
    large = {x.shape for x in model.params.values() if x.size > 1000}
    constants = re.findall(r"stablehlo\.constant .*tensor<([\dx]+)x", program.mlir_module())
    assert large and not large & {tuple(map(int, x.split("x"))) for x in constants}
