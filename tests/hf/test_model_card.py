"""The model card of a saved checkpoint: its lines run, and the card that was there goes on."""

import re

import numpy as np
import pytest
from huggingface_hub import ModelCard

import anyjax
from anyjax.hf import model_card
from tests.models import tiny

pytestmark = pytest.mark.sample(every=2)


def snippet(text: str) -> str:
    """The lines of the section on JAX."""
    section = text[text.index("## Use in JAX") :]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]


@pytest.mark.parametrize("name", ["llama", "bert", "vit", "t5"])
def test_the_lines_of_a_card_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = tiny.build(name)[0]
    model = anyjax.from_torch(module)
    model.save_pretrained("saved", card=True)
    card = ModelCard.load("saved/README.md")
    assert card.data.library_name == "transformers" and {"jax", "anyjax"} <= {*card.data.tags}
    assert f"`{type(module).__name__}`" in card.text and 'from_pretrained("saved")' in card.text
    names: dict = {}
    exec(snippet(card.text), names)
    own = model(**names["inputs"])
    out = names["out"]
    np.testing.assert_allclose(out[0], own[0], rtol=1e-4, atol=1e-4)
    assert ("tokens" in names) == (name in ("llama", "t5"))


def test_a_card_that_is_there_goes_on(tmp_path):
    model = anyjax.from_pretrained("examples/tiny-llama")
    folder = tmp_path / "saved"
    model.save_pretrained(folder)
    assert not (folder / "README.md").exists()
    own = "---\nlicense: mit\ntags: [code]\n---\n# Mine\n\nWords.\n\n## Data\n\nMore words.\n"
    (folder / "README.md").write_text(own)
    model.save_pretrained(folder)
    assert (folder / "README.md").read_text() == own
    for _ in range(2):
        model.save_pretrained(folder, card="owner/name")
        card = ModelCard.load(folder / "README.md")
        assert card.data.license == "mit" and card.data.tags == ["code", "jax", "anyjax"]
        assert (
            card.text.count("## Use in JAX") == 1 and 'from_pretrained("owner/name")' in card.text
        )
        assert all(words in card.text for words in ("# Mine", "## Data", "More words."))


def test_the_folder_of_the_process_is_no_origin(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").write_text("# Somebody's project\n")
    (tmp_path / "tokenizer.json").write_text("{}")
    anyjax.from_torch(tiny.build("llama")[0]).save_pretrained("saved", card=True)
    assert "Somebody" not in (tmp_path / "saved" / "README.md").read_text()
    assert not (tmp_path / "saved" / "tokenizer.json").exists()


def test_what_comes_after_the_section_stays(tmp_path):
    module = tiny.build("llama")[0]
    (tmp_path / "README.md").write_text("# A\n\n## Use in JAX\n\nold\n\n## License\n\nours\n")
    model_card.write(module, tmp_path, "name", tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "\n## License\n\nours" in text and "old" not in text


def test_a_model_with_inputs_that_nobody_knows(monkeypatch):
    module = tiny.build("llama")[0]
    monkeypatch.setattr(type(module), "main_input_name", "waves", raising=False)
    monkeypatch.setattr(type(module), "forward", lambda self, waves: waves)
    assert model_card.call(module) == "print(model)"
