"""A checksum of JSON inside of itself: it finds entries that were damaged."""

from __future__ import annotations

import json
import zlib
from typing import Any

Json = dict[str, Any]
CHECKSUM = "crc32"  # of all other entries; files of earlier versions have none


def signed(entries: Json) -> Json:
    """Returns entries with a checksum of them.

    Example:
      >>> check_signature(signed({"a": (1, 2)})), check_signature({"a": 1})
      (None, None)
    """
    return entries | {CHECKSUM: checksum(entries)}


def checksum(entries: Json) -> int:
    """Returns the checksum of all entries but the checksum, as they are read back from a file."""
    signed_entries = {k: v for k, v in entries.items() if k != CHECKSUM}
    as_read = json.loads(json.dumps(signed_entries))
    return zlib.crc32(json.dumps(as_read, sort_keys=True).encode())


def check_signature(entries: Json) -> None:
    """Raises ValueError if entries have another checksum than the one among them."""
    if CHECKSUM in entries and entries[CHECKSUM] != checksum(entries):
        raise ValueError("its entries were changed: their checksum is another one")
