"""Floor 0: freeze, thaw and release suspended coroutines, generators and async generators.

It knows CPython and nothing above it: no pickler, no run, no store. Importing it never fails; `supported`
tells whether frames can be captured on this interpreter, and every function that needs one asks the same
table.

- `table`: what differs between versions
- `shell`: the plain half of a frozen frame, and the frozen frame
- `freeze`: reading, cross-checked
- `patch`, `assemble`: code that puts a frame back where it stood
- `thaw`: make, fill, prime
- `awaitables`: the opaque objects between two frames
- `release`: letting go without running anything
- `codes`: digests, and which patched code came from which original
"""

from snaprt.frames.awaitables import await_target, chain, is_opaque, take_apart
from snaprt.frames.codes import code_digest, original_code
from snaprt.frames.freeze import freeze
from snaprt.frames.release import release
from snaprt.frames.shell import Frozen, Shell
from snaprt.frames.table import interpreter, supported
from snaprt.frames.thaw import fill, make, prime, thaw

__all__ = [
    "Frozen",
    "Shell",
    "await_target",
    "chain",
    "code_digest",
    "fill",
    "freeze",
    "interpreter",
    "is_opaque",
    "make",
    "original_code",
    "prime",
    "release",
    "supported",
    "take_apart",
    "thaw",
]
