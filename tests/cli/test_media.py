"""Pictures and sounds on the command line, through the checkpoint's own processor."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import transformers as t
from PIL import Image
from scipy.io import wavfile
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

import anyjax
from anyjax.cli import _media, app
from anyjax.errors import BadCheckpoint, MissingDependency, WrongValue
from tests.hf.generation.test_generate_images import PICTURE, llava
from tests.models import tiny

pytestmark = pytest.mark.sample(every=10)

WORDS = {"<pad>": 0, "<s>": 1, "</s>": 2, "what": 3, "is": 4, "this": 5, "?": 6}


def run(*arguments):
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def tokenizer(**special):
    words = WORDS | {f"w{i}": i for i in range(7, 96)} | special
    backend = Tokenizer(models.WordLevel(words, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    out = t.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    )
    out.add_special_tokens({"additional_special_tokens": [*special]})
    return out


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    """The folder of a tiny LLaVA with its processor, and a picture."""
    folder = tmp_path_factory.mktemp("llava")
    torch.manual_seed(0)
    module, _ = llava()
    module.generation_config.pad_token_id = 0
    module.save_pretrained(folder)
    size = {"height": 32, "width": 32}
    pixels = t.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=size)
    names = {"patch_size": 8, "vision_feature_select_strategy": "default"}
    names |= {"num_additional_image_tokens": 1}
    own = tokenizer(**{"<image>": PICTURE})
    t.LlavaProcessor(pixels, own, **names).save_pretrained(folder)
    rng = np.random.default_rng(0)
    picture = folder / "picture.png"
    Image.fromarray(rng.integers(0, 255, (40, 48, 3), dtype=np.uint8)).save(picture)
    return folder, picture


def test_a_picture_and_a_question(seeing):
    folder, picture = seeing
    out = run("generate", folder, "-p", "what is this", "--image", picture, "-n", "5", "--json")
    module = t.LlavaForConditionalGeneration.from_pretrained(folder).eval()
    processor = t.AutoProcessor.from_pretrained(folder)
    inputs = processor(
        images=[Image.open(picture)], text=["<image>what is this"], return_tensors="pt"
    )
    want = module.generate(**inputs, max_new_tokens=5, do_sample=False)[0]
    assert json.loads(out.stdout)["text"] == processor.decode(want, skip_special_tokens=True)


def test_run_compares_with_the_picture(seeing):
    folder, picture = seeing
    about = json.loads(run("run", folder, "-p", "what", "--image", picture, "--json").stdout)
    assert about["agree"]


def test_verify_runs_the_part_that_sees(seeing):
    folder, picture = seeing
    about = json.loads(run("verify", folder, "-p", "what", "--image", picture, "--json").stdout)
    assert about["ok"] and any("vision_tower" in module["path"] for module in about["modules"])


def test_a_saved_loop(seeing, tmp_path):
    folder, picture = seeing
    prompt = _media.Prompt("what is this", [str(picture)])
    batch, own = _media.batch_of(folder, prompt)
    model = anyjax.from_pretrained(folder)
    model.save(tmp_path / "m", **batch, platforms=("cpu",), generate={"max_new_tokens": 4})
    t.AutoProcessor.from_pretrained(folder).save_pretrained(tmp_path / "m" / "tokenizer")
    arguments = "-p", "what is this", "--image", picture, "-n", "4", "--json"
    out = json.loads(run("generate", tmp_path / "m", *arguments).stdout)
    ids = anyjax.generate(model, **batch, max_new_tokens=4)
    assert out["text"] == own.decode(ids[0].tolist(), skip_special_tokens=True)


def test_a_sound(tmp_path):
    module = tiny.build("whisper")[0]
    module.generation_config = t.GenerationConfig(
        decoder_start_token_id=1, pad_token_id=0, eos_token_id=2, max_length=12,
        is_multilingual=False,
    )  # fmt: skip
    module.save_pretrained(tmp_path)
    features = t.WhisperFeatureExtractor(feature_size=16, chunk_length=0.4, hop_length=160)
    features.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    t.WhisperProcessor(features, tokenizer()).save_pretrained(tmp_path)
    samples = (2**14 * np.sin(np.arange(3200) / 9)).astype(np.int16)
    wavfile.write(tmp_path / "sound.wav", 8000, np.stack([samples, samples], 1))
    sound = _media.sound(str(tmp_path / "sound.wav"), 16000)
    assert sound.shape == (6400,) and 0.45 < np.abs(sound).max() < 0.55
    out = run("generate", tmp_path, "--audio", tmp_path / "sound.wav", "-n", "5", "--json")
    batch, own = _media.batch_of(tmp_path, _media.Prompt("", (), [str(tmp_path / "sound.wav")]))
    want = module.generate(torch.tensor(batch["input_features"]), max_new_tokens=5)[0]
    assert json.loads(out.stdout)["text"] == own.decode(want, skip_special_tokens=True)


def test_bad_files(seeing, tmp_path):
    folder, _ = seeing
    (tmp_path / "text.png").write_text("no picture")
    for read, option in ((_media.picture, "--image"), (lambda x: _media.sound(x, 8), "--audio")):
        for name in ("text.png", "none.png"):
            with pytest.raises(WrongValue, match=option):
                read(str(tmp_path / name))
    with pytest.raises(BadCheckpoint, match="no processor that can be read"):
        _media.batch_of(tmp_path, _media.Prompt("x"))
    with pytest.raises(BadCheckpoint, match="takes no such prompt"):
        _media.batch_of(folder, _media.Prompt("<image><image>", [str(folder / "picture.png")]))


def test_rates_and_kinds_of_samples(tmp_path):
    wave = np.sin(np.arange(800) / 5)
    for dtype, scale, shift in ((np.uint8, 127, 128), (np.int32, 2**31 - 1, 0), (np.float32, 1, 0)):
        file = tmp_path / f"{np.dtype(dtype)}.wav"
        wavfile.write(file, 8000, (wave * scale + shift).astype(dtype))
        np.testing.assert_allclose(_media.sound(str(file), 8000), wave, atol=0.02)
        assert _media.sound(str(file), 4000).shape == (400,)


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed")
def test_a_package_that_a_processor_needs(tmp_path):
    tokenizer().save_pretrained(tmp_path)
    kinds = {"processor_class": "Qwen2VLProcessor", "image_processor_type": "Qwen2VLImageProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(kinds))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_vl"}))
    with pytest.raises(MissingDependency) as error:
        _media.batch_of(tmp_path, _media.Prompt("what", ["picture.png"]))
    assert "Qwen2VLVideoProcessor of" in str(error.value)
    assert "pip install torchvision" in str(error.value)
