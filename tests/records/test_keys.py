"""Keys: where they come from, who may read them, and what is said when there is none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from snaprt.errors import MissingKey, WrongKey
from snaprt.records import Key, Keyring
from snaprt.records.envelope import RECORD, seal, unseal
from snaprt.records.keys import read_key_file

FIRST, SECOND = "first-key-0123456789", "second-key-0123456789"


def test_a_key_file_is_made_at_first_use_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "config" / "snaprt" / "key"
    made = Keyring.default({}, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert Keyring.default({}, path) == made
    assert [entry.name for entry in path.parent.iterdir()] == ["key"], "nothing is left beside it"


def test_two_fresh_key_files_hold_different_keys(tmp_path: Path) -> None:
    assert read_key_file(tmp_path / "a").signer.id != read_key_file(tmp_path / "b").signer.id


def test_threads_that_make_the_key_file_at_once_end_with_one_key(tmp_path: Path) -> None:
    for attempt in range(20):
        path = tmp_path / str(attempt) / "key"
        with ThreadPoolExecutor(8) as pool:
            rings = list(pool.map(lambda _, path=path: read_key_file(path), range(8)))
        assert len({ring.signer.id for ring in rings}) == 1


def test_processes_that_make_the_key_file_at_once_end_with_one_key(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, snaprt.records.keys as k; print(k.read_key_file(pathlib.Path(sys.argv[1])).ids)"
    )
    path = str(tmp_path / "new" / "key")
    running = [
        subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert len({process.communicate()[0] for process in running}) == 1
    assert all(process.returncode == 0 for process in running)


@pytest.mark.skipif(os.name != "posix", reason="file modes mean nothing on this system")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    read_key_file(path)
    path.chmod(mode)
    with pytest.raises(MissingKey, match=f"can be read by others.*{mode:04o}.*chmod 600"):
        read_key_file(path)


def test_the_first_key_signs_and_the_others_still_verify() -> None:
    old, new = Keyring.from_bytes(FIRST.encode()), Keyring.from_bytes(SECOND.encode(), FIRST.encode())
    data = seal(old, RECORD, {"n": 1})
    assert unseal(new, RECORD, data, "it")[0] == {"n": 1}
    assert seal(new, RECORD, {"n": 1}) == seal(Keyring.from_bytes(SECOND.encode()), RECORD, {"n": 1})


def test_another_key_is_named_with_both_ids_and_the_mend() -> None:
    ours, theirs = Keyring.from_bytes(FIRST.encode()), Keyring.from_bytes(SECOND.encode())
    with pytest.raises(WrongKey) as caught:
        unseal(ours, RECORD, seal(theirs, RECORD, {}), "Record 1 of run 'x'")
    text = str(caught.value)
    assert ours.signer.id in text
    assert theirs.signer.id in text
    assert "SNAPRT_KEY" in text
    assert "Record 1 of run 'x'" in text


def test_the_variable_goes_before_the_file_and_may_hold_several_keys(tmp_path: Path) -> None:
    ring = Keyring.default({"SNAPRT_KEY": f"{FIRST}  {SECOND}\n"}, tmp_path / "key")
    assert ring == Keyring((Key.from_text(FIRST), Key.from_text(SECOND)), "SNAPRT_KEY")
    assert not (tmp_path / "key").exists()


@pytest.mark.parametrize(
    ("value", "says"),
    [("", "set and empty"), ("  ", "set and empty"), ("short", "at least 16 characters, this one has 5")],
)
def test_an_unusable_variable_is_refused_and_the_file_is_not_taken_instead(
    tmp_path: Path, value: str, says: str
) -> None:
    with pytest.raises(MissingKey, match=says):
        Keyring.default({"SNAPRT_KEY": value}, tmp_path / "key")
    assert not (tmp_path / "key").exists()


def test_a_place_where_no_key_file_can_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingKey, match=r"SNAPRT_KEY isn't set.*Not a directory.*Set SNAPRT_KEY"):
        Keyring.default({}, tmp_path / "file" / "key")


def test_a_key_file_without_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text("# nothing\n\n")
    with pytest.raises(MissingKey, match="holds no signing key"):
        read_key_file(path)


def test_a_key_file_may_hold_several_keys_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.touch(0o600)
    path.write_text(f"# the new one signs\n{FIRST}\n\n  {SECOND}\n")
    assert read_key_file(path).keys == (Key.from_text(FIRST), Key.from_text(SECOND))


def test_a_secret_is_never_shown() -> None:
    key = Key.from_text(FIRST)
    assert FIRST not in repr(Keyring((key,)))
    assert key.secret.hex() not in repr(key)
    assert repr(key.secret) not in repr(key)


def test_mac_and_id_are_those_that_the_format_names() -> None:
    # From docs/format.md, computed there with openssl: a reader in another language must get the same.
    key = Key.from_text("an-example-key-of-docs/format.md")
    assert key.id == "e3bcdccc8bbcde4e"
    assert key.mac(b"abc").hex() == "19fcfe713e56f6822904940d58afc631b64316f29b4f38bfbaac05139f3f736b"
    assert key.mac(b"a", b"bc") == key.mac(b"abc")
