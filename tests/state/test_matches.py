"""Matches, compiled structs and rows of SQLite travel, because they are plain results that agents keep."""

from __future__ import annotations

import contextlib
import gc
import random
import re
import sqlite3
import struct
import weakref

import pytest

from snaprt import state
from snaprt.errors import NotRestorable, NotSerialisable


def twin(obj):
    return state.load(state.dump(obj).parts)


def told(match):
    """All that a match tells."""
    template = r"<\g<0>>" if isinstance(match.string, str) else rb"<\g<0>>"
    return (
        *(match.re, match.string, match.pos, match.endpos, match.regs, match.lastindex, match.lastgroup),
        *(match.groups(), match.groupdict(), match[0], match.span(), match.expand(template)),
    )


TEXT = "one fish, two fish, red fish; blue fish\n"
FOUND = {
    "match": re.match(r"(?P<n>\w+) (fish)", TEXT),
    "match_of_less_than_fullmatch": re.compile(r"\w+?").match("word"),
    "fullmatch": re.compile(r"\w+?").fullmatch("word"),
    "search": re.search(r"(?P<colour>red|blue) (?P<animal>\w+)", TEXT),
    "groups_that_took_no_part": re.search(r"(a)|(b)|(?P<c>t)", TEXT),
    "between_bounds": re.compile(r"fish").search(TEXT, 5, 30),
    "beyond_the_bounds": re.compile(r"\b").search(TEXT, -3, 1000),
    "looking_behind_its_start": re.compile(r"(?<=e )f").search(TEXT, 4),
    "anchored_in_lines": re.compile(r"^b", re.M).search("a\nb"),
    "empty": re.search("", ""),
    "bytes": re.search(rb"f.s", TEXT.encode()),
    "buffer": re.search(rb"f.s", bytearray(TEXT.encode())),
    "nested_groups": re.match(r"((a)(b(c)))+", "abcabc"),
    "flags_inside": re.search(r"(?i:FISH)", TEXT),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_match_tells_after_the_load_what_it_told_before(name):
    match = FOUND[name]
    again = twin(match)
    assert told(again) == told(match)
    assert told(twin(again)) == told(match)


def test_every_match_of_a_search_that_went_on_keeps_its_place():
    generator = random.Random(3)
    for _ in range(200):
        text = "".join(generator.choices("ab \n", k=generator.randrange(40)))
        pattern = re.compile(
            generator.choice([r"a*", r"\b", r"(a)|(b)", r"a*?", r"(?=a)", r"(ab?)+", r"^.", r"|a"])
        )
        start, end = generator.randrange(5), generator.randrange(50)
        found = list(pattern.finditer(text, start, end))
        replaced = []
        pattern.sub(lambda match, replaced=replaced: replaced.append(match) or "", text)
        matches = [*found, *replaced]
        generator.shuffle(matches)
        assert list(map(told, twin(matches))) == list(map(told, matches))


def test_ten_thousand_matches_of_one_text_are_one_search():
    text = "word " * 10_000
    matches = list(re.finditer(r"\w+", text))[::-1]
    again = twin(matches)
    assert [match.span() for match in again] == [match.span() for match in matches]
    assert len({id(match.string) for match in again}) == 1


def test_a_match_and_its_text_stay_one_text_and_one_pattern():
    pattern = re.compile("(f)ish")
    text = TEXT + "!"
    again_text, again_pattern, match = twin([text, pattern, pattern.search(text)])
    assert match.string is again_text
    assert match.re is again_pattern


def test_a_match_that_isnt_to_be_found_again_is_refused_with_the_mend():
    buffer = bytearray(b"a fish")
    match = re.search(rb"fish", buffer)
    buffer[2:] = b"fowl"

    async def agent(box):
        found = box.pop()
        await Pause()
        return found

    coro = agent([match])
    coro.send(None)
    with pytest.raises(NotSerialisable) as caught:
        state.dump(coro)
    (offender,) = caught.value.offenders
    assert offender.path.endswith("agent: local 'found'")
    assert "match.group" in offender.hint
    assert "doesn't find it" in offender.reason
    coro.close()


class Pause:
    def __await__(self):
        yield


def test_a_match_that_another_python_doesnt_find_is_refused_by_name(monkeypatch):
    from snaprt.state import matches

    parts = state.dump([re.search("fish", TEXT)]).parts
    monkeypatch.setattr(matches, "_same", lambda *_: False)
    with pytest.raises(NotRestorable, match="'fish' at 4"):
        state.load(parts)


def test_a_dump_keeps_no_text_alive():
    class Text(str):
        pass

    text = Text(TEXT)
    here = weakref.ref(text)
    again = twin(list(re.finditer("fish", text)))
    there = weakref.ref(again[0].string)
    assert there() == TEXT
    del text, again
    gc.collect()
    assert here() is None
    assert there() is None


def test_a_compiled_struct_is_its_format():
    packing = struct.Struct("<6sBI")
    again = twin([packing, packing])
    assert again[0] is again[1]
    assert (again[0].format, again[0].size) == ("<6sBI", 11)
    assert again[0].pack(b"abc", 1, 2) == packing.pack(b"abc", 1, 2)


def test_a_row_keeps_its_names_in_their_order_and_its_values():
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    row = connection.execute(
        """select 1 as "a""b", x'00' as "a""b", 2.5 as "", 'ö' as "größe", null as "select" """
    ).fetchone()
    connection.close()
    again, shared = twin([row, row])
    assert type(again) is sqlite3.Row
    assert again is shared
    assert (again.keys(), tuple(again)) == (row.keys(), tuple(row))
    assert again == row
    assert again["GRÖSSE".lower().replace("ss", "ß")] == "ö"


class OwnRow(sqlite3.Row):
    pass


class OwnStruct(struct.Struct):
    pass


def test_subclasses_of_them_are_refused_rather_than_made_plain():
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = OwnRow
        row = connection.execute("select 1").fetchone()
    for thing in (row, OwnStruct("i")):
        with pytest.raises(NotSerialisable, match=type(thing).__name__):
            state.dump([thing])
