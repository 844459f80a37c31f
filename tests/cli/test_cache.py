"""``anyjax cache`` and ``--no-cache``; ``generate --profile``; tokenizers without transformers."""

import os
import sys

import pytest
import transformers
from typer.testing import CliRunner

from anyjax.cli import _cache, app
from anyjax.cli._tokenizer import fast_tokenizer

DEMO = "examples/tiny-llama"


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """An environment without settings of the cache, and a cache folder of its own."""
    for name in [x for x in os.environ if x.startswith(("JAX_COMPILATION", "JAX_PERSISTENT"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ["XDG_CACHE_HOME"] = str(tmp_path)
    return tmp_path / "anyjax"


def test_the_command_line_keeps_what_it_compiles(environment, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["anyjax", "generate", "folder"])
    _cache.use()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"].startswith(str(environment))
    assert os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] == str(2**30)


@pytest.mark.parametrize("place", [1, 2])
def test_no_cache_may_stand_anywhere(environment, monkeypatch, place):
    argv = ["anyjax", "generate", "folder"]
    argv.insert(place, "--no-cache")
    monkeypatch.setattr(sys, "argv", argv)
    _cache.use()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    assert argv == ["anyjax", "generate", "folder"]


def test_settings_of_the_user_are_left_alone(environment, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["anyjax"])
    os.environ["JAX_COMPILATION_CACHE_DIR"] = "mine"
    _cache.use()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "mine"
    assert "JAX_COMPILATION_CACHE_MAX_SIZE" not in os.environ


def test_what_is_kept_is_shown_and_cleared(environment):
    folder = environment / "programs-a"
    folder.mkdir(parents=True)
    (folder / "jit_f-1-cache").write_bytes(b"x" * 2_000_000)
    (folder / "jit_f-1-atime").write_bytes(b"")
    (environment / "executables.secret").write_bytes(b"stays")
    assert "1 programs, 2.00 MB of at most 1.07 GB" in CliRunner().invoke(app, ["cache"]).output
    assert "removed 1 programs" in CliRunner().invoke(app, ["cache", "--clear"]).output
    assert not folder.exists() and (environment / "executables.secret").exists()


def test_profile_tells_the_stages():
    arguments = ["generate", DEMO, "-p", "def main(", "-n", "2", "--profile"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    for stage in ("imports", "weights", "tokenizer", "first token", "traced in", "all"):
        assert stage in result.stderr
    assert "imports" not in result.stdout


def test_fast_tokenizers_are_transformers_own(tmp_path):
    theirs = transformers.AutoTokenizer.from_pretrained(DEMO)
    theirs.save_pretrained(tmp_path)
    ours = fast_tokenizer(tmp_path)
    assert (ours.bos_token_id, ours.eos_token_id) == (theirs.bos_token_id, theirs.eos_token_id)
    for text in ("def main(", "  x = {'é': 1}\n\n", "<|endoftext|> a", "名前"):
        ids = theirs(text).input_ids
        assert ours(text).input_ids == ids
        assert ours.decode(ids, skip_special_tokens=True) == theirs.decode(
            ids, skip_special_tokens=True
        )


def test_what_needs_transformers_is_left_to_it(tmp_path):
    assert fast_tokenizer(tmp_path) is None
    transformers.AutoTokenizer.from_pretrained(DEMO).save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    text = file.read_text()
    assert '"clean_up_tokenization_spaces": false' in text
    file.write_text(text.replace('spaces": false', 'spaces": true'))
    assert fast_tokenizer(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text("{")
    file.write_text(text)
    assert fast_tokenizer(tmp_path) is None
