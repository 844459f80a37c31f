"""Configs that are refused, and how."""

from pathlib import Path

import pytest

from anyjax.errors import BadCheckpoint, Unsupported
from anyjax.train.adapters.peft_config import check_config, check_targets

pytestmark = pytest.mark.sample(every=2)

FINE = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q"]}
DAMAGED = [
    *([], 3, None, "LORA", {}, {"peft_type": 2}, {"peft_type": None}),
    *(FINE | {"r": r} for r in (0, -1, "4", None, 4.0, True, [4])),
    *(FINE | {"lora_alpha": x} for x in ("8", None, [], True)),
    *(FINE | {"target_modules": x} for x in ({"q": 1}, [1], 7, [None])),
    *(FINE | {"modules_to_save": x} for x in ({"q": 1}, [1], 7)),
    FINE | {"use_dora": "yes"},
]


@pytest.mark.parametrize("config", DAMAGED, ids=str)
def test_damaged(config):
    with pytest.raises(BadCheckpoint, match=r"is not one that PEFT writes"):
        check_config(Path("folder"), config)


def test_other_kinds():
    check_config(Path("folder"), FINE)
    for more in ({"peft_type": "PREFIX_TUNING"}, {"bias": "all"}, {"rank_pattern": {"q": 2}}):
        with pytest.raises(Unsupported, match="an adapter of type"):
            check_config(Path("folder"), FINE | more)


def test_an_expression_that_is_none():
    with pytest.raises(BadCheckpoint):
        check_targets(Path("folder"), FINE | {"target_modules": "(q"}, {"a.q"}, ["a.q"])
