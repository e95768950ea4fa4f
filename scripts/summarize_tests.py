#!/usr/bin/env python3
"""Counts a test run: every case of a GoogleTest binary, every other ctest test.

Usage: summarize_tests.py RESULTS_DIR   (ctest.xml and one XML a binary)
Prints the skipped cases with their reasons, the failed ones, and as the last
line `N passed, M failed, K skipped`; exits 1 if anything failed or nothing ran.
"""
import pathlib
import sys
import xml.etree.ElementTree as xml

results = pathlib.Path(sys.argv[1])
passed, failed, skipped = 0, [], {}

binaries = {}
for path in sorted(results.glob("*.xml")):
    if path.name != "ctest.xml":
        binaries[path.stem] = xml.parse(path).getroot()
for name, report in binaries.items():
    for case in report.iter("testcase"):
        full = f'{name}: {case.get("classname")}.{case.get("name")}'
        skip = case.find("skipped")
        if case.find("failure") is not None:
            failed.append(full)
        elif skip is not None:
            # The message begins with file and line.
            reason = " ".join(skip.get("message", "").split("\n", 1)[-1].split())
            skipped.setdefault(reason or "no reason", []).append(full)
        elif case.get("status") == "run":
            passed += 1

for test in xml.parse(results / "ctest.xml").getroot().iter("testcase"):
    name, status = test.get("name"), test.get("status")
    if status == "run":
        passed += name not in binaries
    elif status == "fail":
        # A binary that crashed leaves no report, or one without its failure.
        if not any(entry.startswith(f"{name}: ") for entry in failed):
            failed.append(name)
    else:
        # A binary that skips as a whole says so in its last line.
        said = [line for line in (test.findtext("system-out") or "").split("\n")
                if line.startswith("skipped: ")]
        skipped.setdefault(said[-1][len("skipped: "):] if said else "ctest", []).append(name)

for reason, names in sorted(skipped.items()):
    print(f"skipped {len(names)}: {reason}")
for name in failed:
    print(f"FAILED {name}")
total_skipped = sum(len(names) for names in skipped.values())
print(f"{passed} passed, {len(failed)} failed, {total_skipped} skipped")
sys.exit(1 if failed or passed == 0 else 0)
