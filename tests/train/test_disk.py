from pathlib import Path

import pytest

from tojax.errors import NotWritten
from tojax.train.disk import writing


def test_the_inner_path_is_named():
    inner, outer = (writing(Path(x)) for x in ("inner", "outer"))
    with pytest.raises(NotWritten, match="inner cannot be written"), outer, inner:
        raise ValueError("from tensorstore\nand more")


def test_other_errors_pass():
    with pytest.raises(KeyError), writing(Path("out")):
        raise KeyError
