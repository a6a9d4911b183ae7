"""docs/format.md is enough: a reader written from it alone reads what is stored, and the first logs stay
readable.

The reader below shares no code with snaprt. If it must be changed, the format has changed: then so must its
version.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
from pathlib import Path
from typing import Any

import zstandard

from snaprt.records import Keyring
from snaprt.store.local import LocalObjects
from snaprt.store.store import Store
from tests.store.places import opened

MIB = 1 << 20
GOLDEN = Path(__file__).parent / "golden"
GOLDEN_KEY = "an-example-key-of-docs/format.md"


class Reader:
    """Reads a run in a folder, by the page."""

    def __init__(self, folder: Path, key: str):
        self.folder = folder
        self.key_id = hmac.digest(key.encode(), b"snaprt v1 key id", "sha256")[:8]
        self.secret = hmac.digest(key.encode(), b"snaprt v1 mac", "sha256")

    def mac(self, data: bytes) -> bytes:
        return hmac.digest(self.secret, data, "sha256")

    def head(self, data: bytes, kind: bytes) -> tuple[dict[str, Any], bytes, bytes]:
        """Header, head, body."""
        assert data[:10] == b"\x89SNAPRT\n\x01" + kind
        assert data[10:18] == self.key_id
        end = 22 + int.from_bytes(data[18:22], "little")
        assert data[end : end + 32] == self.mac(data[:end])
        return json.loads(data[22:end]), data[: end + 32], data[end + 32 :]

    def records(self) -> list[bytes]:
        """The records in order: from a pack (without torn frames), then from files."""
        found: dict[int, bytes] = {}
        for path in sorted((self.folder / "log").iterdir()):
            data = path.read_bytes()
            if path.name != f"{1:012d}" or data[:8] != b"\x89SNAPPK\n":
                found[int(path.name)] = data
                continue

            def check(some: bytes, salt: bytes = data[8:24]) -> bytes:
                return hashlib.blake2b(some, digest_size=8, key=salt).digest()

            assert data[24:32] == check(data[:8])
            at = 32
            while at < len(data):
                head, length = data[at : at + 32], int.from_bytes(data[at + 16 : at + 24], "little")
                end = at + 40 + length
                assert head[:8] == check(b"marker")
                assert head[24:] == check(head[:24]) == data[end - 8 : end]
                found.setdefault(int.from_bytes(head[8:16], "little"), data[at + 32 : end - 8])
                at = end
        assert list(found) == list(range(1, len(found) + 1))
        return list(found.values())

    def log(self) -> list[dict[str, Any]]:
        """The headers, with each section's bytes under `content`."""
        found: list[dict[str, Any]] = []
        raws: dict[tuple[int, str], bytes] = {}
        tables: dict[tuple[int, str], int] = {}
        areas: dict[int, bytes] = {}  # the blobs in each record
        previous = None
        for number, record in enumerate(self.records(), 1):
            header, head, body = self.head(record, b"R")
            assert (header["number"], header["run"], header["previous"]) == (
                number,
                self.folder.name,
                previous,
            )
            previous = hashlib.sha256(head).hexdigest()
            header["content"] = {}
            for section in header["sections"]:
                size = sum(segment[1] for segment in section["segments"])
                if section.get("apart"):
                    stored = self.blob(section["sha256"], self.object(section["sha256"]))
                else:
                    stored, body = body[:size], body[size:]
                assert hashlib.sha256(stored).hexdigest() == section["sha256"]
                base = raws[section["base"], section["name"]] if section["codec"] == "delta" else b""
                raw = b""
                for length, size, *place in section["segments"]:
                    if not size:
                        raw += base[place[0] : place[0] + length]
                        continue
                    tool = zstandard.ZstdDecompressor()
                    if place:
                        window = base[place[0] : place[1]]
                        assert len(window) == place[1] - place[0] >= 8
                        dictionary = zstandard.ZstdCompressionDict(window, zstandard.DICT_TYPE_RAWCONTENT)
                        tool = zstandard.ZstdDecompressor(dict_data=dictionary)
                    raw, stored = raw + tool.decompress(stored[:size]), stored[size:]
                    assert 0 < length <= 8 * MIB
                assert sum(segment[0] for segment in section["segments"]) == len(raw)
                assert stored == b""
                assert len(raw) == section["raw"]
                raws[number, section["name"]] = raw
                tables[number, section["name"]] = section["references"]
            assert len(body) == header["leaves"]
            areas[number] = body
            for (at, name), count in tables.items():
                if at == number:
                    header["content"][name] = self.leaves(raws[number, name], count, areas)
            found.append(header)
        return found

    def leaves(self, raw: bytes, count: int, areas: dict[int, bytes]) -> bytes:
        stream, content, at = raw[72 * count :], b"", 0
        for i in range(count):
            entry = raw[72 * i : 72 * i + 72]
            position, length, record, start, size = (
                int.from_bytes(entry[k : k + 8], "little") for k in (0, 8, 48, 56, 64)
            )
            name = entry[16:48].hex()
            assert (record == 0) == (size == 0)
            stored = areas[record][start : start + size] if record else self.object(name)
            leaf = self.blob(name, stored)
            assert len(leaf) == length
            content += stream[at:position] + leaf
            at = position
        return content + stream[at:]

    def object(self, name: str) -> bytes:
        return (self.folder / "blobs" / name).read_bytes()

    def blob(self, name: str, data: bytes) -> bytes:
        header, head, body = self.head(data, b"B")
        content, number = b"", 0
        while body:
            size, codec = int.from_bytes(body[:4], "little"), body[4:5]
            stored, mac, body = body[5 : 5 + size], body[5 + size : 37 + size], body[37 + size :]
            proof = hashlib.sha256(stored).digest()
            assert mac == self.mac(head[-32:] + number.to_bytes(8, "little") + codec + proof)
            content += stored if codec == b"\0" else zstandard.decompress(stored)
            number += 1
            assert len(content) == min(number * header["chunk"], header["length"])
        assert hashlib.sha256(content).hexdigest() == name == header["sha256"]
        return content

    def answer(self, suspension: str) -> bytes:
        header, _, body = self.head((self.folder / "inbox" / suspension).read_bytes(), b"A")
        assert (header["run"], header["suspension"], header["length"]) == (
            self.folder.name,
            suspension,
            len(body),
        )
        assert hashlib.sha256(body).hexdigest() == header["sha256"]
        return body


def contents() -> list[dict[str, list[bytes]]]:
    """Sections of a small log that has everything: deltas on deltas, a copy, a blob in its record and one
    alone, values, a record without a state."""
    dice = random.Random(1)
    lines = [dice.randbytes(20).hex().encode() for _ in range(1700)]
    leaf, large = b"0123456789" * 7000, dice.randbytes(32) * 140_000
    # Cut as a dump cuts its stream, so that only leaves are long.
    stream = [b"".join(lines[at : at + 850]) for at in (0, 850)]
    return [
        {"state": [*stream, leaf, large, b"end"], "summary": [b'{"step":null}'], "values": [b"arguments"]},
        {"state": [*stream, b"more", leaf, large, b"end"], "summary": [b'{"step":"ask"}']},
        {"state": [*stream, b"more and more", leaf, b"end"], "summary": [b'{"step":"ask"}']},
        {"values": [b"outcome"]},
    ]


def write(store: Store) -> None:
    log = store.create("golden")
    for kind, sections in zip(("start", "suspend", "wake", "finish"), contents(), strict=True):
        log.append(kind, detail={"n": kind}, sections=sections)
    log.put_answer("ask-1", b"yes")


def test_a_reader_written_from_the_page_alone_reads_what_is_stored(tmp_path: Path) -> None:
    store = opened(str(tmp_path))
    log = store.create("r")
    dice = random.Random(2)
    noise = [dice.randbytes(60_000) for _ in range(150)]
    large = dice.randbytes(9_000_000)
    states = [
        [*noise, large, b"between", bytes(70_000), b"end"],
        [noise[3], *noise, large, b"end"],
        [noise[3], *noise, b"more", large, b"end"],
        [b"short"],
        [],
    ]
    for state in states:
        log.append("result", sections={"state": state, "summary": [b"{}"]})
    log.put_answer("ask-1", b"yes")
    reader = Reader(tmp_path / "runs" / "r", "the-key-of-the-tests-0123456789")
    found = reader.log()
    assert [header["content"]["state"] for header in found] == [b"".join(state) for state in states]
    sections = [header["sections"][1] for header in found]
    assert [len(section["segments"]) for section in sections] == [2, 3, 3, 1, 0]
    assert [section["codec"] for section in sections[:3]] == ["zstd", "delta", "delta"]
    assert [section.get("base") for section in sections[:3]] == [None, 1, 2]
    assert reader.answer("ask-1") == b"yes"


def test_the_first_log_of_this_format_is_still_read() -> None:
    # Written once by the first version; never to be made anew.
    ring = Keyring.from_bytes(GOLDEN_KEY.encode())
    log = Store(LocalObjects(str(GOLDEN)), ring, {}, "local").log("golden")
    for number, sections in enumerate(contents(), 1):
        record = log.read(number)
        assert {name: b"".join(parts) for name, parts in record.sections.items()} == {
            name: b"".join(parts) for name, parts in sections.items()
        }
    assert [header.kind for header in log.headers()] == ["start", "suspend", "wake", "finish"]
    second, third = (log.header(number).section("state") for number in (2, 3))
    assert second is not None
    assert third is not None
    assert (second.base, third.base) == (1, 2)
    assert any(not segment.stored for segment in second.segments), "a copy"
    given = log.get_answer("ask-1")
    assert given is not None
    assert given.data == b"yes"
    report = log.verify()
    assert (report.problems, report.records, report.blobs, report.answers, report.unused) == ((), 4, 2, 1, ())


def test_the_page_s_reader_reads_the_first_log_too() -> None:
    reader = Reader(GOLDEN / "runs" / "golden", GOLDEN_KEY)
    found = reader.log()
    assert [header["content"].get("values") for header in found] == [b"arguments", None, None, b"outcome"]
    states = [b"".join(sections.get("state", [])) for sections in contents()]
    assert [header["content"].get("state", b"") for header in found] == states
    assert reader.answer("ask-1") == b"yes"
