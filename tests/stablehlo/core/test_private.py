"""jaxlib's names that reading StableHLO needs are all in the installed version."""

from anyjax import private_names
from anyjax.stablehlo.core import attributes, private


def test_nothing_is_gone():
    missing = [k for k, v in vars(private).items() if isinstance(v, private_names.Gone)]
    assert missing == []
    assert len(attributes.WORDS) == 10 and len(attributes.RECORDS) == 6
