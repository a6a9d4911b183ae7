"""Two processes can't both act: of all that take a run at the same moment one pays, the others turn away.

    python -m tests.crash.test_owners --rounds 200 [--s3]      # as often as wanted

Each round is a run that was killed somewhere (or never started), and processes that are let go at it by one
barrier. The service ignores idempotency keys, so that a second payment would be a second row.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.crash.lives import At, Life, Place, bucket, ended, gate
from tests.crash.service import Service, payments

pytestmark = pytest.mark.skipif(os.name != "posix", reason="there are no POSIX signals on this system")

OWNERS = 4
TURNED_AWAY = {"RunBusy", "Fenced", "RunExists"}


def race(place: Place, service: Service, run: str, agent: str, killed: At | None) -> list[str]:
    """One round. Gives how the processes ended."""
    args = ("A-17", service.url)
    if killed is not None:
        with Life(place, run, agent, args, dies=killed) as life:
            assert life.said() is None
    together = gate(OWNERS)
    with ExitStack() as stack:
        lives = [stack.enter_context(Life(place, run, agent, args, gate=together)) for _ in range(OWNERS)]
        said = [life.said() for life in lives]
    for each in said:
        assert each is not None
        assert each["outcome"] == "Completed" or each["outcome"] in TURNED_AWAY, each
    outcomes = sorted(each["outcome"] for each in said if each is not None)
    if "Completed" not in outcomes:
        # All were turned away: the one that owned the run was fenced by one that then gave way to it. Nobody
        # is left, and the run waits for the next.
        ended(place, run, agent, args)
    paid = [(order, cents) for key, order, cents in service.rows() if key.startswith(f"{run}/")]
    assert paid == [("A-17", 4200)], (outcomes, paid)
    return outcomes


# Nobody has started it; it stands before its payment; it has announced it; it has paid and the result is
# recorded.
STAGES = (None, At(3, "before"), At(4, "after"), At(5, "after"))


def races(place: Place, service: Service, rounds: int) -> Counter[str]:
    """Rounds at every stage, with an agent that asks the service and one that asks a person."""
    counted: Counter[str] = Counter()
    for number in range(rounds):
        agent = ("examples.refund:refund", "examples.refund:refund_by_person")[number // len(STAGES) % 2]
        outcomes = race(place, service, f"r{number}", agent, STAGES[number % len(STAGES)])
        counted.update(outcomes)
    return counted


def test_of_all_that_resume_at_the_same_moment_one_acts(place: Place, tmp_path: Path) -> None:
    with payments(tmp_path, "--ignore-keys") as service:
        counted = races(place, service, 2 * len(STAGES))
    assert sum(counted.values()) == 2 * len(STAGES) * OWNERS
    assert counted["RunBusy"] + counted["Fenced"] > 0, "nobody met anybody"


def test_of_all_that_steal_at_the_same_moment_one_pays(place: Place, tmp_path: Path) -> None:
    """An owner may lose the run while its call is under way: there it takes a service that honours keys."""
    agent = "examples.refund:refund_by_key"
    with payments(tmp_path) as service:
        args = ("A-17", service.url)
        with Life(place, "r", agent, args, dies=At(4, "after")) as life:
            assert life.said() is None
        together, options = gate(OWNERS), {"resume": {"steal": True}}
        with ExitStack() as stack:
            lives = [
                stack.enter_context(Life(place, "r", agent, args, gate=together, options=options))
                for _ in range(OWNERS)
            ]
            outcomes = {said["outcome"] for life in lives if (said := life.said()) is not None}
        assert outcomes <= {"Completed", *TURNED_AWAY}
        assert ended(place, "r", agent, args)["value"]["refunded"] == 4200
        assert len(service.rows()) == 1


def test_a_busy_run_names_its_owner_and_until_when(place: Place, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    with payments(tmp_path) as service:
        agent, args = "tests.crash.lingering:pay_at_last", ("A-17", service.url, str(flag))
        with Life(place, "r", agent, args) as owner:
            until_it_waits(owner, flag)
            with Life(place, "r", agent, args) as other:
                said = other.said()
            flag.touch()
            ending = owner.said()
        assert said is not None
        assert said["outcome"] == "RunBusy"
        assert f"process {owner.process.pid} on " in said["text"]
        assert "lease holds until 20" in said["text"]
        assert ending is not None
        assert ending["value"] == {"refunded": 4200}
        assert len(service.rows()) == 1


def test_an_owner_paused_before_its_payment_wakes_up_fenced(place: Place, tmp_path: Path) -> None:
    paused_and_overtaken(place, tmp_path, "linger_and_refund", ("refund",), ("--ignore-keys",))


def test_an_owner_paused_in_its_payment_wakes_up_fenced(place: Place, tmp_path: Path) -> None:
    # What it had begun before it was paused, nobody can take back: here a service has to honour the key.
    paused_and_overtaken(place, tmp_path, "pay_at_last")


def test_an_owner_whose_lease_wrongly_seems_over_is_fenced_before_it_pays(
    place: Place, tmp_path: Path
) -> None:
    """As if its clock were wrong: it lives and works, and another takes the run over all the same. Both are
    then let go at the payment at the same moment."""
    flag = tmp_path / "flag"
    with payments(tmp_path, "--ignore-keys") as service:
        target, args = "tests.crash.lingering:linger_and_refund", ("refund", "A-17", service.url, str(flag))
        with Life(place, "r", target, args, options={"lease": 0.001}) as first:
            until_it_waits(first, flag)
            with taken_over(place, target, args, flag) as second:
                flag.touch()
                said, other = first.said(), second.said()
        assert said is not None
        assert said["outcome"] == "Fenced", said
        assert other is not None
        assert other["value"]["refunded"] == 4200
        assert len(service.rows()) == 1


@contextmanager
def taken_over(place: Place, agent: str, args: tuple[str, ...], flag: Path) -> Iterator[Life]:
    """A second process in the middle of the same wait, as soon as the first one's lease lets it."""
    Path(f"{flag}.waiting").unlink()
    for _ in range(200):
        with Life(place, "r", agent, args) as second:
            while second.process.is_alive():
                if Path(f"{flag}.waiting").exists():
                    yield second
                    return
                second.process.join(0.02)
            said = second.said()
            assert said is not None
            assert said["outcome"] == "RunBusy"
    raise AssertionError("the run stays busy")


def paused_and_overtaken(
    place: Place, folder: Path, agent: str, first: tuple[str, ...] = (), flags: tuple[str, ...] = ()
) -> None:
    """Pauses an owner past its lease, has another finish the run, and lets the first one go on."""
    flag = folder / "flag"
    with payments(folder, *flags) as service:
        args = (*first, "A-17", service.url, str(flag))
        target, lease = f"tests.crash.lingering:{agent}", {"lease": 0.5}
        with Life(place, "r", target, args, options=lease) as paused:
            until_it_waits(paused, flag)
            paused.signal(signal.SIGSTOP)
            flag.touch()
            assert overtaken(place, target, args)["value"]["refunded"] == 4200
            assert len(service.rows()) == 1
            paused.signal(signal.SIGCONT)
            said = paused.said()
        assert said is not None
        assert said["outcome"] == "Fenced", said
        assert "owns the run now" in said["text"]
        assert len(service.rows()) == 1


def overtaken(place: Place, agent: str, args: tuple[str, ...]) -> dict[str, Any]:
    """Another process takes the run over as soon as its owner's lease is out, and not before."""
    for _ in range(200):
        with Life(place, "r", agent, args) as other:
            said = other.said()
            assert said is not None
            if said["outcome"] != "RunBusy":
                return said
            other.process.join(0.1)
    raise AssertionError("the run stays busy")


def until_it_waits(life: Life, flag: Path) -> None:
    while not Path(f"{flag}.waiting").exists():
        life.process.join(0.02)
        assert life.process.is_alive()


def main() -> int:
    options = argparse.ArgumentParser(
        prog="python -m tests.crash.test_owners", description=__doc__.split("\n")[0]
    )
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--s3", action="store_true", help="on a real S3 server instead of a local store")
    chosen = options.parse_args()
    os.environ.setdefault("SNAPRT_KEY", "the-key-of-the-tests-0123456789")
    start = monotonic()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        place = stack.enter_context(bucket()) if chosen.s3 else Place(f"{folder}/store")
        service = stack.enter_context(payments(Path(folder), "--ignore-keys"))
        counted = races(place, service, chosen.rounds)
        rows = len(service.rows())
    print(
        f"{chosen.rounds} rounds of {OWNERS} processes, {monotonic() - start:.0f} s: {rows} payments; "
        + ", ".join(f"{count} {outcome}" for outcome, count in counted.most_common())
    )
    return 0 if rows == chosen.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
