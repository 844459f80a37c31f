import numpy as np
import pytest

import anyjax
from anyjax.errors import WrongBatch
from anyjax.train import numpy_collate, pack, segment_mask
from tests.tolerance import assert_close


def texts(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(3, 200, n).tolist() for n in lengths]


def test_every_text_is_in_one_piece():
    given = texts(np.random.default_rng(1).integers(1, 17, 60))
    rows = list(pack(given, 16))
    found = [
        row["input_ids"][row["segment_ids"] == n].tolist()
        for row in rows
        for n in range(1, row["segment_ids"].max() + 1)
    ]
    assert sorted(found) == sorted(given)
    assert len(rows) < sum(map(len, given)) / 16 * 1.2


def test_labels_are_what_the_text_itself_predicts():
    (row,) = pack([[5, 6, 7], [8, 9]], 7, pad=1)
    assert row["labels"].tolist() == [-100, 6, 7, -100, 9, -100, -100]
    assert row["position_ids"].tolist() == [0, 1, 2, 0, 1, 0, 0]
    assert row["input_ids"].tolist() == [5, 6, 7, 8, 9, 1, 1]


def test_packed_texts_give_the_logits_of_each_alone():
    pytest.importorskip("transformers")
    model = anyjax.from_pretrained("examples/tiny-llama")
    given = texts([7, 5, 7, 5])
    rows = numpy_collate(list(pack(given, 16)))
    mask = segment_mask(rows["segment_ids"])
    logits = model(
        rows["input_ids"], attention_mask=mask, position_ids=rows["position_ids"], use_cache=False
    ).logits
    found = 0
    for i, segments in enumerate(rows["segment_ids"]):
        for n in range(1, segments.max() + 1):
            here = segments == n
            alone = model(rows["input_ids"][i, here][None], use_cache=False).logits[0]
            assert_close(logits[i, here], alone, reduction=2000)
            found += 1
    assert found == len(given)


def test_a_text_that_is_longer_is_refused():
    with pytest.raises(WrongBatch, match="a text of 5 tokens"):
        list(pack([[1] * 5], 4))
