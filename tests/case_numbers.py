#!/usr/bin/env python3
"""Checks that every number of docs/cases.md is in the name of a test.

Usage: case_numbers.py ROOT
A test's name carries numbers as Case07 or Case14And15. Prints the numbers
without a test and the tests whose number is not in the list; exits 1 if any.
"""
import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
listed = {int(number) for number in
          re.findall(r"^(\d+)\. ", (root / "docs/cases.md").read_text(), re.MULTILINE)}
tested = {}
for path in sorted((root / "tests").rglob("*_test.cc")):
    for suite in re.findall(r"^TEST(?:_[FP])?\((Case\d\d(?:And\d\d)*),", path.read_text(),
                            re.MULTILINE):
        for number in re.findall(r"\d\d", suite):
            tested.setdefault(int(number), []).append(f"{path.name}: {suite}")
missing = sorted(listed - tested.keys())
unknown = sorted(tested.keys() - listed)
for number in missing:
    print(f"case {number} of docs/cases.md has no test named Case{number:02}")
for number in unknown:
    print(f"{tested[number][0]} has a number that docs/cases.md does not list")
if listed != set(range(1, len(listed) + 1)):
    print("docs/cases.md does not count from 1 without a gap")
    sys.exit(1)
print(f"{len(listed)} cases, {len(listed) - len(missing)} with a test")
sys.exit(1 if missing or unknown else 0)
