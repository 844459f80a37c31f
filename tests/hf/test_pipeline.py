"""Pipelines in JAX beside transformers' own, on checkpoints with random weights."""

import json

import numpy as np
import pytest
import torch
import transformers as t
from tokenizers import Tokenizer, models, pre_tokenizers

import anyjax
from anyjax.errors import MissingRng, Unsupported
from anyjax.hf import pipeline
from tests.models.tiny import TEXT, VISION

WORDS = ["[PAD]", "[UNK]", "[MASK]", "the", "cat", "dog", "sat", "ran", "on", "mat"]


def save(module, folder, *parts):
    torch.manual_seed(0)
    for part in (module, *parts):
        part.save_pretrained(folder)
    return folder


def words() -> t.PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return t.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]"
    )


def assert_alike(got, want):
    """Equal labels and texts, numbers within 1e-4."""
    if isinstance(want, dict):
        assert set(got) == set(want)
        for key in want:
            assert_alike(got[key], want[key])
    elif isinstance(want, list) and want and isinstance(want[0], (dict, list)):
        assert len(got) == len(want)
        for pair in zip(got, want):
            assert_alike(*pair)
    elif isinstance(want, str):
        assert got == want
    else:
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def assert_same_results(task, folder, inputs, **options):
    ours = pipeline(task, folder, **options)
    theirs = t.pipeline(task, str(folder), device="cpu", **options)
    got = ours(inputs)
    assert_alike(got, theirs(inputs))
    return got


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    torch.manual_seed(0)
    module = t.BertForMaskedLM(t.BertConfig(**TEXT))
    return save(module, tmp_path_factory.mktemp("bert"), words())


def test_fill_mask(bert):
    found = assert_same_results("fill-mask", bert, "the [MASK] sat on the mat", top_k=3)
    assert len(found) == 3


def test_feature_extraction(bert):
    found = assert_same_results("feature-extraction", bert, ["the cat", "the dog ran on"])
    assert np.shape(found[1][0]) == (4, 32)


def test_text_classification_in_batches(tmp_path):
    torch.manual_seed(0)
    config = t.BertConfig(**TEXT, num_labels=3)
    folder = save(t.BertForSequenceClassification(config), tmp_path, words())
    texts = ["the cat sat", "the dog ran on the mat"]
    assert_same_results("text-classification", folder, texts, batch_size=2, top_k=None)


def test_image_classification(tmp_path):
    pytest.importorskip("PIL", reason="images are decoded by pillow")
    from PIL import Image

    torch.manual_seed(0)
    module = t.ViTForImageClassification(t.ViTConfig(**VISION, num_labels=4))
    processor = t.ViTImageProcessorPil(size={"height": 32, "width": 32})
    folder = save(module, tmp_path, processor)
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)
    assert_same_results("image-classification", folder, Image.fromarray(pixels), top_k=2)


def test_automatic_speech_recognition(tmp_path):
    letters = {c: i for i, c in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"abcdefg"])}
    (tmp_path / "letters.json").write_text(json.dumps(letters))
    torch.manual_seed(0)
    config = t.Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), vocab_size=len(letters),
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
    )  # fmt: skip
    folder = save(
        t.Wav2Vec2ForCTC(config),
        tmp_path / "wav2vec2",
        t.Wav2Vec2CTCTokenizer(str(tmp_path / "letters.json")),
        t.Wav2Vec2FeatureExtractor(),
    )
    sound = np.sin(np.arange(1600, dtype=np.float32) / 7)
    assert_same_results("automatic-speech-recognition", folder, sound)


def test_text_generation_from_a_model():
    model = anyjax.from_pretrained("examples/tiny-llama")
    write = pipeline("text-generation", model, do_sample=False, max_new_tokens=8)
    theirs = t.pipeline("text-generation", "examples/tiny-llama", device="cpu")
    want = theirs("def main(", do_sample=False, max_new_tokens=8)
    assert write("def main(") == want


def test_sampling_needs_a_key():
    write = pipeline("text-generation", "examples/tiny-llama")
    with pytest.raises(MissingRng, match="pipeline samples"):
        write("def main(", do_sample=True)


def test_a_checkpoint_without_the_tasks_head_is_refused(bert):
    with pytest.raises(Unsupported, match="text-classification with a checkpoint of BertForMasked"):
        pipeline("text-classification", bert)


def test_an_unknown_task_is_refused():
    with pytest.raises(Unsupported, match="the task 'text-knitting'"):
        pipeline("text-knitting", "examples/tiny-llama")
