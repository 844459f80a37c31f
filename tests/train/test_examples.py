"""The examples run as they stand, and show what they say."""

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.sample(every=6)

SHOWN = {
    "train_xor": lambda first, last, accuracy: last < first / 4 and accuracy > 95,
    "train_digits_resnet": lambda ours, theirs: ours == theirs > 90,
    "train_bert_classifier": lambda first, last, accuracy, shapes: accuracy > 90 and shapes == 2,
    "train_ctc_speech": lambda first, last, right: last < first / 5 and right > 60,
    "train_diffusion": lambda noise, drawn: drawn < noise / 4,
    "per_sample_gradients": lambda sample, times, norm, one: sample == 5 and times > 5 and norm < 1,
    "ensemble": lambda first, last, members, near, far: last < first / 20 and far > 3 * near,
    "hyper_gradients": lambda first, last, *rest: last < 0.8 * first,
    "hessian_vector": lambda one, all_, first, last: abs(one - all_) < 1e-3 and last < first,
    "dpo": lambda before, after, right: before == 0 and after > 1 and right > 90,
    "influence": lambda match, worst: match > 0.95 and worst == 17,
}
DRAWN = {"ensemble", "train_xor"}


@pytest.mark.parametrize("name", SHOWN)
def test_it_shows_what_it_says(name, capsys, monkeypatch, tmp_path):
    for package in ("matplotlib", "sklearn", "transformers"):
        pytest.importorskip(package)
    file = Path("examples", f"{name}.py").resolve()
    picture = tmp_path / "picture.png"
    monkeypatch.setattr("sys.argv", [str(file), *([str(picture)] if name in DRAWN else [])])
    runpy.run_path(str(file), run_name="__main__")
    numbers = [float(x) for x in re.findall(r"\d+(?:\.\d+)?", capsys.readouterr().out)]
    assert SHOWN[name](*numbers)
    assert picture.exists() == (name in DRAWN)
    assert len(file.read_text().splitlines()) <= 65
