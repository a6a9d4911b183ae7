"""Benchmarks: what snaprt costs, beside what others or the bare means cost in the same run.

`python -m benchmarks` runs them all, `python -m benchmarks.frames` and so on one of them. README.md says
what each measures. Nothing here is imported by the package or its tests.
"""
