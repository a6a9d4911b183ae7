"""What an answer has to be, and under which name a question is found.

The type that an agent gives to `suspend(answer=…)` is pydantic's to understand: any annotation will do.
Whoever drives the run holds an answer against the type itself; whoever gives one may not have the agent's
code, and holds it against the JSON Schema that the summary shows.

Names become parts of paths, and the system's own (`ask-3`, `approve.2`, `_cancel.m…`) have to stay apart from
them: a user's name has no dot, doesn't begin with `_`, and isn't one that is counted.

This file must not know the kernel. pydantic is imported when the first type is seen: most runs have none.
"""

from __future__ import annotations

import re
from typing import Any

from snaprt.kernel.interrupts import is_ctrl_c
from snaprt.kernel.preview import in_words

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_COUNTED = re.compile(r"(ask|doubt)-[0-9].*")


class WrongAnswer(ValueError):
    """An answer isn't of the type that was asked for. It never leaves snaprt: the question stays open."""


def checked_name(name: Any, what: str) -> str:
    """A name that a user chose for a question or an inbox. Raises ValueError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _COUNTED.fullmatch(name):
        raise ValueError(
            f"{name!r} can't be the name of {what}: use up to 100 letters, digits, '-' and '_', beginning "
            "with a letter, and not ask-1, doubt-1 and the like, which are counted."
        )
    return name


def is_name(name: str) -> bool:
    """Whether a user may have chosen this name."""
    return bool(_NAME.fullmatch(name)) and not _COUNTED.fullmatch(name)


def schema(expected: Any) -> dict[str, Any] | None:
    """The JSON Schema of a type, for those who don't have it; None where it has none (an arbitrary class).

    Raises TypeError for what pydantic can't check at all.
    """
    import pydantic

    adapter = _adapter(expected)
    try:
        return dict(adapter.json_schema())
    except pydantic.errors.PydanticInvalidForJsonSchema:
        return None


def fit(expected: Any, value: Any) -> Any:
    """`value` as the type has it. Raises WrongAnswer that says what is wrong, and where."""
    import pydantic

    try:
        return _adapter(expected).validate_python(value)
    except pydantic.ValidationError as error:
        raise WrongAnswer(
            "; ".join(f"{_place(each['loc'])}{each['msg']}" for each in error.errors(include_url=False))
        ) from error
    except BaseException as error:  # what a validator raises is about this answer, whatever it is
        if is_ctrl_c(error):
            raise
        raise WrongAnswer(in_words(error)) from error


def _place(location: tuple[int | str, ...]) -> str:
    return f"{'.'.join(map(str, location))}: " if location else ""


def _adapter(expected: Any) -> Any:
    import pydantic

    try:
        return pydantic.TypeAdapter(expected)
    except (pydantic.errors.PydanticUserError, NameError) as error:
        raise TypeError(f"answer={expected!r} is no type that pydantic can check: {error}") from error
