"""Random async programs for the sameness fuzzer: source text from a seed, every construct a frame can stand
in.

A program is a set of functions that call only later ones, so it ends. What it does it writes to a trace,
with values reduced to what doesn't depend on addresses, so that two runs can be compared.
"""

from __future__ import annotations

import random

LOCALS = ("v0", "v1", "v2", "v3")
ERRORS = ("ValueError", "KeyError", "ZeroDivisionError", "LookupError")


class Function:
    """What the author knows of the function being written."""

    def __init__(self, kind: str, number: int, names: tuple[str, ...]) -> None:
        self.kind, self.number, self.names = kind, number, names
        self.loops = self.handlers = self.star = 0
        self.cells: list[str] = []
        self.method = False

    @property
    def awaits(self) -> bool:
        return self.kind in ("async", "agen")

    @property
    def yields(self) -> bool:
        return self.kind in ("gen", "agen")


class Author:
    """Writes one program. Every decision comes from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kinds: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.budget = 0

    def program(self) -> str:
        """Source text with a coroutine function `f0` to start with."""
        pick = self.random
        extra = [
            pick.choice(("async", "async", "agen", "agen", "gen", "gen")) for _ in range(pick.randint(2, 5))
        ]
        self.kinds = ["async", *extra]
        for number, kind in enumerate(self.kinds):
            self.budget = pick.randint(6, 16)
            self.function(number, kind)
        return "\n".join(self.lines) + "\n"

    def label(self) -> int:
        self.count += 1
        return self.count

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    # --- functions ---

    def function(self, number: int, kind: str) -> None:
        pick, depth = self.random, 0
        function = Function(kind, number, LOCALS)
        word = "async def" if kind in ("async", "agen") else "def"
        name = f"f{number}"
        shape = pick.random()
        args = pick.choice(
            ("v0=1, v1=2", "v0=1, *rest, v1=2", "v0=1, /, v1=3, **more", "*, v0=2, v1=1", "*rest", "")
        )
        if shape < 0.2:
            function.method = True
            self.put(0, f"class C{number}(Root):")
            self.put(1, f"{word} {name}(self{', ' + args if args else ''}):")
            depth = 1
        elif shape < 0.45:
            self.put(0, f"def make{number}(c0, c1):")
            self.put(1, f"{word} {name}({args}):")
            self.put(2, "nonlocal c0")
            function.cells = ["c0", "c1"]
            depth = 1
        else:
            self.put(0, f"{word} {name}({args}):")
        if pick.random() < 0.15:
            self.put(depth + 1, '"""A docstring."""')
        if pick.random() < 0.06:
            self.big(function, depth + 1)
        if pick.random() < 0.3:
            self.put(depth + 1, "k0 = 5")
            self.put(depth + 1, "peek = lambda: k0")
            function.cells.append("k0")
        if pick.random() < 0.6:
            self.put(depth + 1, "v2 = v3 = 7")
        if number == 0:  # several goes, so that one error doesn't end the program
            for _ in range(pick.randint(2, 4)):
                self.put(depth + 1, "try:")
                self.budget = pick.randint(4, 8)
                self.block(function, depth + 2, 3, pick.randint(2, 4))
                self.put(depth + 1, "except (Exception, BaseExceptionGroup) as error:")
                self.put(depth + 2, f"trace({self.label()}, error, await nap({self.label()}), handled())")
        self.block(function, depth + 1, 3, pick.randint(2, 5))
        if function.yields:
            self.put(depth + 1, f"yield {self.label()}")
        if kind != "agen":
            self.put(depth + 1, f"return {self.expression(function, 2)}")
        if shape < 0.2:
            self.put(0, f"{name} = C{number}().{name}")
        elif shape < 0.45:
            self.put(1, f"return {name}")
            self.put(0, f"{name} = make{number}(3, 4)")

    def big(self, function: Function, depth: int) -> None:
        """More locals and constants than fit one byte, so that arguments and jumps are extended."""
        for start in range(0, 300, 10):
            self.put(depth, "; ".join(f"big{at} = {at * 1000 + 7}" for at in range(start, start + 10)))
        self.put(depth, f"big270 = {self.expression(function, 1)}")

    def block(self, function: Function, depth: int, deep: int, size: int) -> None:
        before = len(self.lines)
        for _ in range(size):
            if self.budget <= 0:
                break
            self.statement(function, depth, deep)
        if len(self.lines) == before:
            self.put(depth, f"trace({self.label()})")

    # --- statements ---

    def statement(self, function: Function, depth: int, deep: int) -> None:
        self.budget -= 1
        simple = [
            self.assign,
            self.say,
            self.assign,
            self.augment,
            self.unbind,
            self.raising,
            self.leave,
            self.cell,
        ]
        if function.yields:
            simple += [self.yielding] * 4
        if function.kind == "gen":
            simple.append(self.delegate)
        if function.awaits:
            simple += [self.park, self.hold]
        nested = [
            self.loop,
            self.while_loop,
            self.attempt,
            self.attempt,
            self.attempt,
            self.managed,
            self.star,
        ]
        nested += [self.branch, self.matching, self.inner]
        if function.awaits:
            nested += [self.managed_async, self.managed_async, self.loop_async, self.loop_async]
        pool = simple if deep <= 0 or self.random.random() < 0.45 else nested
        self.random.choice(pool)(function, depth, deep)

    def target(self, function: Function) -> str:
        return self.random.choice((*function.names, *[c for c in function.cells if c != "c1"]))

    def assign(self, function: Function, depth: int, deep: int) -> None:
        self.put(depth, f"{self.target(function)} = {self.expression(function, 3)}")

    def say(self, function: Function, depth: int, deep: int) -> None:
        self.put(depth, f"trace({self.label()}, {self.expression(function, 3)})")

    def augment(self, function: Function, depth: int, deep: int) -> None:
        self.put(depth, f"{self.target(function)} += {self.expression(function, 2)}")

    def unbind(self, function: Function, depth: int, deep: int) -> None:
        name = self.random.choice(function.names)
        self.put(depth, "try:")
        self.put(depth + 1, f"del {name}")
        self.put(depth, "except NameError as missing:")
        self.put(depth + 1, f"trace({self.label()}, missing)")

    def cell(self, function: Function, depth: int, deep: int) -> None:
        if not function.cells:
            return self.say(function, depth, deep)
        name = self.random.choice(function.cells)
        self.put(depth, "try:")
        if name != "c1" and self.random.random() < 0.4:
            self.put(depth + 1, f"del {name}")
        self.put(depth + 1, f"trace({self.label()}, {'peek()' if name == 'k0' else name})")
        self.put(depth, "except NameError as missing:")
        self.put(depth + 1, f"trace({self.label()}, missing)")
        return None

    def raising(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        error = pick.choice(ERRORS)
        forms = [
            f"raise {error}({self.label()})",
            f"raise {error}({self.expression(function, 1)}) from KeyError(0)",
        ]
        forms.append(f"raise ExceptionGroup('g', [ValueError({self.label()}), KeyError(1)])")
        if function.handlers:
            forms += ["raise", "raise"]
        self.put(depth, f"if less({pick.randint(0, 99)}, 40):")
        self.put(depth + 1, pick.choice(forms))

    def leave(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        forms = []
        if not function.star:
            forms.append("return" if function.kind == "agen" else f"return {self.expression(function, 1)}")
        if function.loops:
            forms += ["break", "continue"] * 2
        if not forms:
            return self.say(function, depth, deep)
        self.put(depth, f"if less({pick.randint(0, 99)}, 30):")
        self.put(depth + 1, pick.choice(forms))
        return None

    def yielding(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        value = self.expression(function, 2)
        forms = (f"{self.target(function)} = yield {value}", f"yield {value}")
        forms += (
            f"trace({self.label()}, [1, (yield {value}), 2])",
            f"v1 = call(1, (yield {value}), k=(yield 2))",
        )
        self.put(depth, pick.choice(forms))

    def delegate(self, function: Function, depth: int, deep: int) -> None:
        gens = [n for n in range(function.number + 1, len(self.kinds)) if self.kinds[n] == "gen"]
        source = self.random.choice([f"f{n}()" for n in gens] + ["[1, 2]", "iter((3, 4))"])
        self.put(depth, f"{self.random.choice(function.names)} = yield from {source}")

    def park(self, function: Function, depth: int, deep: int) -> None:
        self.put(depth, f"{self.target(function)} = {self.awaiting(function, 2)}")

    def hold(self, function: Function, depth: int, deep: int) -> None:
        """An awaitable that stands about, not begun, while others run."""
        later = [n for n in range(function.number + 1, len(self.kinds)) if self.kinds[n] != "gen"]
        if not later:
            return self.say(function, depth, deep)
        number = self.random.choice(later)
        held = f"f{number}()" if self.kinds[number] == "async" else f"f{number}().asend(None)"
        self.put(depth, f"held = {held}")
        self.put(depth, f"trace({self.label()}, await nap({self.label()}))")
        self.put(depth, f"trace({self.label()}, await held)")
        return None

    def loop(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        gens = [n for n in range(function.number + 1, len(self.kinds)) if self.kinds[n] == "gen"]
        sources = [
            "range(3)",
            "[4, 5]",
            "(6, 7)",
            "{'a': 1, 'b': 2}",
            "enumerate('xy')",
            "zip([1, 2], (3, 4))",
        ]
        sources += [
            "iter([1, 2, 3])",
            "reversed([1, 2])",
            "map(str, [1, 2])",
            "'ab'",
            "(i * 2 for i in range(2))",
        ]
        sources += [f"f{n}()" for n in gens] * 2 + [f"enumerate(f{n}())" for n in gens]
        self.put(depth, f"for {pick.choice(function.names)} in {pick.choice(sources)}:")
        self.looped(function, depth, deep)
        if pick.random() < 0.2:
            self.put(depth, "else:")
            self.block(function, depth + 1, deep - 1, 1)

    def looped(self, function: Function, depth: int, deep: int) -> None:
        function.loops += 1
        self.block(function, depth + 1, deep - 1, self.random.randint(1, 2))
        function.loops -= 1

    def while_loop(self, function: Function, depth: int, deep: int) -> None:
        name = f"n{self.label()}"
        self.put(depth, f"{name} = 0")
        self.put(depth, f"while {name} < {self.random.randint(1, 3)}:")
        self.put(depth + 1, f"{name} += 1")
        self.looped(function, depth, deep)

    def loop_async(self, function: Function, depth: int, deep: int) -> None:
        agens = [n for n in range(function.number + 1, len(self.kinds)) if self.kinds[n] == "agen"]
        sources = ["Aiter(2)"] + [f"f{n}()" for n in agens] * 2 + ["(await nap(i) for i in range(2))"]
        self.put(depth, f"async for {self.random.choice(function.names)} in {self.random.choice(sources)}:")
        self.looped(function, depth, deep)

    def attempt(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        self.put(depth, "try:")
        self.block(function, depth + 1, deep - 1, pick.randint(1, 2))
        if pick.random() < 0.5:
            self.put(depth + 1, f"raise {pick.choice(ERRORS)}({self.label()})")
        clauses = pick.choice(("except", "except", "finally", "both", "bare"))
        if clauses in ("except", "both", "bare"):
            kind = pick.choice(("ValueError", "(KeyError, ZeroDivisionError)", "Exception", "Exception"))
            self.put(depth, f"except {kind} as error:" if clauses != "bare" else "except BaseException:")
            function.handlers += 1
            self.put(depth + 1, f"trace({self.label()}, handled())")
            self.block(function, depth + 1, deep - 1, pick.randint(1, 2))
            self.put(depth + 1, f"trace({self.label()}, handled())")
            if clauses == "bare":
                self.put(depth + 1, "raise")
            function.handlers -= 1
            if pick.random() < 0.3:
                self.put(depth, "else:")
                self.block(function, depth + 1, deep - 1, 1)
        if clauses in ("finally", "both"):
            self.put(depth, "finally:")
            self.put(depth + 1, f"trace({self.label()}, handled())")
            loops, function.loops, function.star = function.loops, 0, function.star + 1
            self.block(function, depth + 1, deep - 1, 1)
            function.loops, function.star = loops, function.star - 1

    def star(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        self.put(depth, "try:")
        self.block(function, depth + 1, deep - 1, 1)
        self.put(depth + 1, "raise ExceptionGroup('g', [ValueError(1), KeyError(2), OSError(3)])")
        loops, function.loops, function.star = function.loops, 0, function.star + 1
        for kind in ("ValueError", "(KeyError, OSError)")[: pick.randint(1, 2)]:
            self.put(depth, f"except* {kind} as group:")
            self.put(depth + 1, f"trace({self.label()}, handled(), group)")
            self.block(function, depth + 1, deep - 1, 1)
        function.loops, function.star = loops, function.star - 1

    def managed(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        managers = [f"Manager({self.label()}, {pick.random() < 0.4})", f"managed({self.label()})"]
        first = pick.choice(managers)
        more = f", {pick.choice(managers)} as v2" if pick.random() < 0.3 else ""
        self.put(depth, f"with {first} as {pick.choice(function.names)}{more}:")
        self.block(function, depth + 1, deep - 1, pick.randint(1, 2))

    def managed_async(self, function: Function, depth: int, deep: int) -> None:
        pick = self.random
        managers = [f"AsyncManager({self.label()}, {pick.random() < 0.4})", f"async_managed({self.label()})"]
        more = f", {pick.choice(managers)} as v3" if pick.random() < 0.3 else ""
        self.put(depth, f"async with {pick.choice(managers)} as {pick.choice(function.names)}{more}:")
        self.block(function, depth + 1, deep - 1, pick.randint(1, 2))
        if pick.random() < 0.5:
            self.put(depth + 1, f"raise {pick.choice(ERRORS)}({self.label()})")

    def branch(self, function: Function, depth: int, deep: int) -> None:
        self.put(depth, f"if {self.expression(function, 2)}:")
        self.block(function, depth + 1, deep - 1, 1)
        self.put(depth, "else:")
        self.block(function, depth + 1, deep - 1, 1)

    def matching(self, function: Function, depth: int, deep: int) -> None:
        self.put(depth, f"match [{self.expression(function, 2)}, {self.random.randint(0, 2)}]:")
        self.put(depth + 1, f"case [int() as v0, 1] if {self.expression(function, 1)}:")
        self.block(function, depth + 2, deep - 1, 1)
        self.put(depth + 1, "case [v1, *_]:")
        self.block(function, depth + 2, deep - 1, 1)

    def inner(self, function: Function, depth: int, deep: int) -> None:
        """A nested function that shares a cell with this frame, and lives as long as it likes."""
        name = f"w{self.label()}"
        self.put(depth, f"{name} = {self.random.randint(1, 9)}")
        self.put(depth, f"{'async ' if function.awaits else ''}def inner_{name}(a=1):")
        self.put(depth + 1, f"nonlocal {name}")
        self.put(depth + 1, f"{name} += a")
        if function.awaits:
            self.put(depth + 1, f"{name} = num({name}) + await nap({self.label()})")
        self.put(depth + 1, f"return {name}")
        for _ in range(2):
            call = f"inner_{name}({self.random.randint(1, 4)})"
            self.put(
                depth, f"trace({self.label()}, {name}, {'await ' if function.awaits else ''}{call}, {name})"
            )

    # --- expressions ---

    def expression(self, function: Function, deep: int) -> str:
        pick = self.random
        if deep <= 0:
            return pick.choice((str(self.label()), pick.choice(function.names), "'s'", "(1, 2)"))
        if function.awaits and pick.random() < 0.5:
            return f"({self.awaiting(function, deep)})"
        first, second = self.expression(function, deep - 1), self.expression(function, deep - 1)
        forms = [
            f"num({first}) + num({second})",
            f"[{first}, {second}]",
            f"f'{{num({self.pure(function)})}}-{{num({self.unquoted(function)})!r:>3}}'",
        ]
        forms += [f"call({first}, {second}, k={first})", f"call(*[{first}], **{{'k': {second}}})"]
        forms += [
            f"THING.method({first}, {second})",
            f"({first} if less({pick.randint(0, 99)}, 50) else {second})",
        ]
        forms += [
            f"(num({first}) < num({second}) <= num({first}))",
            f"({first} and {second})",
            f"{{1: {first}}}",
        ]
        forms += [
            f"[num(x) + num({self.pure(function)}) for x in [1, 2]]",
            f"sum(num(x) for x in range({self.label()} % 4))",
        ]
        forms += [f"(walrus := {first})", f"(*[{first}], {second})", f"str({first})[:5]", f"-num({first})"]
        if function.method:
            forms += ["super().method(1)", "super().method(2)", "__class__.__name__"]
        return pick.choice(forms)

    def pure(self, function: Function) -> str:
        return self.random.choice((str(self.label()), self.random.choice(function.names)))

    def unquoted(self, function: Function) -> str:
        """An operand for an f-string, which up to 3.11 can't hold quotes."""
        later = [n for n in range(function.number + 1, len(self.kinds)) if self.kinds[n] == "async"]
        if not function.awaits:
            return self.pure(function)
        return f"await {self.random.choice(['nap(2)', *[f'f{n}()' for n in later]])}"

    def awaiting(self, function: Function, deep: int) -> str:
        pick = self.random
        later = range(function.number + 1, len(self.kinds))
        tasks = [n for n in later if self.kinds[n] == "async"]
        agens = [n for n in later if self.kinds[n] == "agen"]
        value = self.expression(function, deep - 2)
        forms = [f"await nap({value})"] * 3
        forms += [
            f"await Custom({value})",
            f"await future({self.label()})",
            f"await wrapped({value})",
            "await old(2)",
        ]
        forms += ["await (lambda: nap(3))()", f"THING.method({value}, await nap({value}), k=await nap(2))"]
        forms += [
            f"await THING.amethod({value}, await nap(1))",
            f"call({value}, *[await nap(1)], k=await nap(2))",
        ]
        forms += [
            "[await nap(x) for x in [1, 2]]",
            "{x: await nap(x) for x in [1, 2]}",
            "{await nap(x) for x in [1]}",
        ]
        forms += [
            "[[await nap(x + y) for x in [1, 2]] for y in [1]]",
            "[x async for x in Aiter(2) if await nap(x)]",
        ]
        forms += [
            "[(lambda: x)() + num(await nap(x)) for x in [1, 2]]",
            "[v0 for v0 in [1] if num(await nap(v0)) or 1]",
        ]
        forms += ["[x async for x in (await nap(i) for i in range(2))]"]
        forms += [
            f"f'{{num(await nap({self.pure(function)}))}}:{{await nap(1)!s:>4}}'",
            f"1 < num(await nap({value})) < num(await nap(9))",
        ]
        if function.method:
            forms += ["await super().amethod(1, 2)", "super().method(await nap(1))"]
        forms += [f"await f{n}()" for n in tasks] * 3
        for number in agens:
            forms += [
                f"[x async for x in f{number}()]",
                f"await anext(f{number}(), 7)",
                f"await close(f{number}())",
            ]
            forms += [
                f"await drive(f{number}(), {pick.randint(0, 3)})",
                f"await hurl(f{number}(), {pick.randint(0, 2)})",
            ]
        return pick.choice(forms)
