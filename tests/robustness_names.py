"""Checks that every test that docs/robustness.md names exists.

Usage: robustness_names.py ROOT
"""
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
sources = "\n".join(
    path.read_text() for path in sorted((root / "tests").rglob("*.cc"))
)
lists = "\n".join(
    path.read_text()
    for folder in ("tests", "kernels")
    for path in sorted((root / folder).rglob("CMakeLists.txt"))
)
cases = {
    f"{suite}.{name}"
    for suite, name in re.findall(r"\bTEST(?:_[FP])?\((\w+),\s*(\w+)\)", sources)
}
parameters = {
    f"{prefix}/{suite}.*"
    for prefix, suite in re.findall(
        r"\bINSTANTIATE_TEST_SUITE_P\(\s*(\w+),\s*(\w+),", sources
    )
}
programs = set(re.findall(r"kvforge_(?:command_)?test\((\w+)", lists))
programs |= set(re.findall(r"add_test\(NAME (\w+)", lists))
# Those of functions that take the binary's name.
programs |= set(re.findall(r"\b(\w+_test)\b", lists))

unknown = []
named = 0
for line in (root / "docs/robustness.md").read_text().splitlines():
    cells = line.split("|")
    if len(cells) != 4:
        continue
    for name in re.findall(r"`([^`]+)`", cells[2]):
        if name.startswith(("--", "kvforge ")) or "/check_" in name:
            continue
        named += 1
        if name not in cases | parameters | programs:
            unknown.append(name)
for name in unknown:
    print(f"docs/robustness.md names {name}, which is no test")
print(f"{named} names, {len(unknown)} unknown")
sys.exit(bool(unknown) or named == 0)
