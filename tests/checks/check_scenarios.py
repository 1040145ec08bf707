#!/usr/bin/env python3
"""Sees that every situation of tests/SCENARIOS.md names tests, and that they exist. Prints what does not; Python's standard library only."""
import pathlib
import re
import sys

TESTS = pathlib.Path(__file__).resolve().parent.parent
REQUIRED = {*range(1, 10), *range(11, 26), 30, 31, 32}


def tests_of_cpp():
    pattern = re.compile(r"^TYPED_TEST\((\w+),\s*(\w+)\)|^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.MULTILINE)
    found = set()
    for path in TESTS.rglob("*.cpp"):
        for typed_suite, typed_name, suite, name in pattern.findall(path.read_text()):
            found.add(f"{suite or typed_suite}.{name or typed_name}")
    return found


def tests_of_python():
    found = set()
    for path in TESTS.rglob("*_test.py"):
        suite = None
        for line in path.read_text().splitlines():
            if match := re.match(r"class (\w+)", line):
                suite = match[1]
            elif match := re.match(r"    def (test_\w+)", line):
                found.add(f"{path.stem}.{suite}.{match[1]}")
    return found


def problems(text, known):
    rows = {int(number): re.findall(r"`([\w.]+)`", tests)
            for number, tests in re.findall(r"^\| (\d+) \|[^|]*\|([^|]*)\|$", text, re.MULTILINE)}
    found = [f"situation {number} has no test" for number in sorted(REQUIRED) if not rows.get(number)]
    return found + [f"situation {number}: there is no test {name}"
                    for number, names in sorted(rows.items()) for name in names if name not in known]


def main():
    known = tests_of_cpp() | tests_of_python()
    found = problems((TESTS / "SCENARIOS.md").read_text(), known)
    # The checker itself: a row less and a misspelt name are seen.
    some = sorted(known)[0]
    assert problems(f"| 1 | a | `{some}` |\n| 2 | b | `{some}x` |\n", known) == [
        *(f"situation {number} has no test" for number in sorted(REQUIRED - {1, 2})), f"situation 2: there is no test {some}x"]
    print("\n".join(found) or f"{len(REQUIRED)} situations, every test is there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
