"""What is no prompt, and what a tokenizer gives."""

import numpy as np
import pytest
from transformers import AutoTokenizer

import anyjax
from anyjax.errors import Unsupported, WrongArguments

pytestmark = pytest.mark.sample(every=10)

DEMO = "examples/tiny-llama"
TOKENIZER = r'(?s)tokenizer\(texts, padding=True, return_tensors="np"\)'


@pytest.fixture(scope="module")
def model():
    return anyjax.from_pretrained(DEMO)


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(DEMO)


def test_texts_and_encodings(model, tokenizer):
    for prompt in ("def f(", ["def f("], tokenizer("def f("), {"input_ids": [[3]]}):
        with pytest.raises(WrongArguments, match=TOKENIZER):
            anyjax.generate(model, prompt, max_new_tokens=2)


@pytest.mark.parametrize("option", [{"return_tensors": "jax"}, {"padding": True}])
def test_options_of_tokenizers(model, option):
    with pytest.raises(Unsupported, match=TOKENIZER):
        anyjax.generate(model, np.array([[3, 4]]), **option)


def test_lists_as_a_tokenizer_gives_them(model, tokenizer):
    inputs = tokenizer(["def f(x):", "x"], padding=True, padding_side="left")
    assert isinstance(inputs["attention_mask"], list)
    got = anyjax.generate(model, **inputs, max_new_tokens=3)
    arrays = inputs.convert_to_tensors("np")
    np.testing.assert_array_equal(got, anyjax.generate(model, **arrays, max_new_tokens=3))


def test_a_call_with_what_is_no_array(model, tokenizer):
    inputs = tokenizer("def f(")
    for args, kwargs, name in (
        ((inputs,), {}, "input_ids is a BatchEncoding"),
        ((inputs.input_ids,), {}, "input_ids is a list"),
        (("def f(",), {}, "input_ids is a str"),
        ((), {**inputs}, "input_ids is a list"),
    ):
        with pytest.raises(WrongArguments, match=name) as raised:
            model(*args, **kwargs)
        assert 'return_tensors="np"' in raised.value.do
        with pytest.raises(WrongArguments, match=name):
            model.apply(model.params, *args, **kwargs)


@pytest.mark.parametrize("mask", ["11", 1, np.ones((1, 3), int), [[1, 1, 1]]], ids=repr)
def test_masks_that_are_none(model, mask):
    with pytest.raises(WrongArguments, match="attention_mask is"):
        anyjax.generate(model, np.array([[1, 2]]), attention_mask=mask, max_new_tokens=2)


def test_without_a_prompt_a_text_begins(model):
    want = model.to_torch().generate(max_new_tokens=3, do_sample=False)
    np.testing.assert_array_equal(anyjax.generate(model, max_new_tokens=3), want)
    with pytest.raises(WrongArguments, match="generate without a prompt"):
        anyjax.generate(model, max_new_tokens=3, bos_token_id=None)
