"""Texts become packed rows."""

from types import SimpleNamespace

import numpy as np
import pytest

from anyjax.cli._texts import read_texts, rows
from anyjax.errors import WrongValue


class Letters:
    """One id for each letter."""

    eos_token_id = 1

    def __call__(self, text, verbose):
        return SimpleNamespace(input_ids=[ord(x) for x in text])


def test_lines(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one"}\n\n{"prompt": "two ", "completion": "three"}\n')
    assert read_texts(str(file)) == ["one", "two three"]


@pytest.mark.parametrize("line", ['{"text": 1}', "{", "[]", '{"other": "x"}', "3"])
def test_bad_lines(line, tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text('{"text": "one"}\n' + line + "\n")
    with pytest.raises(WrongValue) as caught:
        read_texts(str(file))
    assert "a.jsonl:2" in caught.value.where


def test_long_texts_are_cut_and_short_ones_share():
    found = rows(["abcdef", "gh"], Letters(), 4)
    letters = ["".join(map(chr, row)).replace("\0", ".") for row in found["input_ids"]]
    assert letters == ["abcd", "ef\1.", "gh\1."]
    assert np.array_equal(found["segment_ids"][1], [1, 1, 1, 0])
