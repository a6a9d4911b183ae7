"""Heads of records: signed, bounded, and read without any code of a payload."""

from __future__ import annotations

import ast
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import snaprt.records
import snaprt.store
from snaprt.errors import Damaged
from snaprt.records import Header
from snaprt.records.envelope import LONGEST_HEADER, RECORD, head_length, seal
from snaprt.records.leaves import Leaves
from snaprt.records.record import follows, read_head, sealed, starts
from snaprt.records.sections import pack
from tests.store.held import KEYRING

json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
headers = st.builds(
    Header,
    number=st.integers(1, 10**12 - 1),
    kind=st.sampled_from(["start", "intent", "result", "suspend", "wake", "claim", "finish"]),
    run=st.text(string.ascii_letters, min_size=1),
    epoch=st.integers(0, 10**9),
    time=st.floats(0, 1e11),
    previous=st.none() | st.binary(min_size=32, max_size=32).map(bytes.hex),
    interpreter=st.dictionaries(st.text(), json, max_size=3),
    state=st.none() | st.integers(1, 1000),
    summary=st.none() | st.integers(1, 1000),
    detail=st.dictionaries(st.text(), json, max_size=4),
    bases=st.dictionaries(
        st.text(),
        st.lists(st.tuples(st.integers(1, 99), st.integers(0, 99)), min_size=1, max_size=4).map(tuple),
        max_size=2,
    ),
)


@settings(max_examples=80, deadline=None)
@given(headers, st.binary(max_size=500))
def test_a_header_comes_back_as_it_was(header: Header, body: bytes) -> None:
    packed = pack("values", [body], Leaves(1, lambda name, alone: None, KEYRING))
    whole = Header(**{**vars(header), "sections": (packed.section,), "leaves": 7})
    record = sealed(whole, [packed], [b"sev", b"en b"], KEYRING)
    data = b"".join(record.pieces)
    head = read_head(data, KEYRING, header.run, header.number)
    assert head.header == whole
    assert head.digest == record.digest
    assert head.size == record.size == len(data)
    start, end = head.place("values")
    assert data[start:end] == b"".join(packed.stored)
    assert data[head.leaves :] == b"seven b"


def header(number: int, previous: str | None) -> Header:
    return Header(number, "result", "r", 0, 1.0, previous, {}, None, None, {})


def test_a_chain_holds_only_in_its_order() -> None:
    first = sealed(header(1, None), [], [], KEYRING)
    second = sealed(header(2, first.digest), [], [], KEYRING)
    heads = [read_head(bytes(each.pieces[0]), KEYRING, "r", n) for n, each in ((1, first), (2, second))]
    starts(heads[0])
    follows(heads[1], heads[0])
    with pytest.raises(Damaged, match="is the first"):
        starts(heads[1])
    with pytest.raises(Damaged, match="written after another"):
        follows(heads[0], heads[1])


def test_a_header_too_long_is_refused_before_it_is_written() -> None:
    with pytest.raises(ValueError, match="header of"):
        seal(KEYRING, RECORD, {"detail": "x" * LONGEST_HEADER})


def test_what_is_no_json_is_refused_before_it_is_written() -> None:
    with pytest.raises(TypeError):
        seal(KEYRING, RECORD, {"detail": object()})
    with pytest.raises(ValueError, match="JSON"):
        seal(KEYRING, RECORD, {"detail": float("nan")})


def test_a_newer_format_is_told_from_damage() -> None:
    data = bytearray(seal(KEYRING, RECORD, {}))
    data[8] = 2
    with pytest.raises(Damaged, match=r"format version 2.*a newer snaprt wrote it"):
        head_length(data, "It")


def test_neither_records_nor_the_store_can_unpickle_anything() -> None:
    for package in (snaprt.records, snaprt.store):
        for path in Path(package.__path__[0]).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import | ast.ImportFrom)
                    else []
                )
                if isinstance(node, ast.ImportFrom):
                    names.append(node.module or "")
                assert not {"pickle", "dill", "marshal", "shelve"} & {
                    name.partition(".")[0] for name in names
                }, path


def test_the_floors_below_know_nothing_of_those_above() -> None:
    allowed = {"records": {"errors", "records"}, "store": {"errors", "records", "store"}}
    for package in (snaprt.records, snaprt.store):
        name = package.__name__.partition(".")[2]
        for path in Path(package.__path__[0]).glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("snaprt."):
                    assert (node.module or "").split(".")[1] in allowed[name], path
