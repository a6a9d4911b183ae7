"""Bytes of one record: header, compression, keys. Floor 1.

Knows nothing of stores, pickles or runs beyond their names. The format to the byte is docs/format.md.
"""

from snaprt.records.keys import Key, Keyring, key_file
from snaprt.records.record import Head, Header, Record, Sealed
from snaprt.records.sections import Section

__all__ = ["Head", "Header", "Key", "Keyring", "Record", "Sealed", "Section", "key_file"]
