"""JSON with a checksum of itself."""

import json

import pytest

from anyjax.saved.checksum import check_signature, checksum, signed


def test_it_is_that_of_what_is_read_back():
    back = json.loads(json.dumps(signed({"a": (1, 2.5), "b": {"c": None}})))
    check_signature(back)
    assert checksum(back) == back["crc32"] != checksum(back | {"a": [1, 2.25]})


def test_changed_entries_are_refused_and_unsigned_ones_read():
    with pytest.raises(ValueError, match="entries were changed"):
        check_signature(signed({"a": 1}) | {"a": 2})
    check_signature({"a": 2})
