"""Weights and modes of n-gram counts; the suite of the package onnx has the skips."""

import numpy as np
import pytest

from tests.onnx.agree import agree, model

TEXT = """m (int64[2, 6] x) => (float[2, 4] y) {{ y = TfIdfVectorizer
  <mode = "{mode}", min_gram_length = 1, max_gram_length = 2, max_skip_count = 1,
   ngram_counts = [0, 2], ngram_indexes = [0, 1, 2, 3], pool_int64s = [2, 3, 5, 4, 7, 8],
   weights = [0.5, 2.0, 3.0, 4.0]> (x) }}"""


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_modes(mode):
    x = np.int64([[2, 2, 3, 5, 4, 7], [7, 1, 8, 8, 5, 4]])
    agree(model(TEXT.format(mode=mode)), x)
