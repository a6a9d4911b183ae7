"""CPython's own tests as a yardstick: run with a freeze and thaw at each suspension, and counted.

The interpreter's installed `test` package knows better than we do what a generator, a coroutine or an asyncio
program may do. It is run unmodified, in several ways (docs/yardstick.md has the results):

- *as written*: whenever a generator, coroutine or async generator has suspended, its frame is frozen, a copy
  thawed and put in its place, and the old one released; then the test goes on with the copy. The object stays
  the same, because no reference held by a test or by C code could be replaced (`exchange`). How control is
  gained at each suspension stands in `watch`.
- *stretched*: the same, and each test method suspends after each of its statements, in whatever block it
  stands (`stretch`). So the tests of `with`, `except*`, `match` and comprehensions, which hardly suspend by
  themselves, say what frames can hold.
- *agent loop*: test methods that are coroutine functions are tasks of a kernel, saved and loaded after every
  turn of its loop in which they stand at an await, with the test case itself in the state (`onloop`). Also
  stretched, by a turn of the loop after each statement.

Run it with `python -m tests.yardstick`. `measure` says what is counted as what, `modules` which modules are
measured, `reasons` why some tests can't hold.
"""
