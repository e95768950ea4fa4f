"""Checks the #include lines of each folder against what it may include.

Usage: layering_test.py ROOT
"""
import re
import sys
from pathlib import Path

# Beginnings of what files below a folder may include, of our files and of
# others; the longest folder counts. Abseil and the standard library may be
# included by all host code.
LLVM = ["clang/", "llvm/", "mlir/"]
RULES = {
    "runtime/base": (["runtime/base/"], []),
    "runtime": (["runtime/", "templates/arch/host_thread.h", "templates/kernels/"],
                ["nlohmann/", "sqlite3.h"]),
    "runtime/host": (["runtime/", "templates/", "arch/host_thread.h"], LLVM + ["boost/context/"]),
    "compiler": (["compiler/", "runtime/base/", "templates/embedded.h"], LLVM),
    "kernels": (["kernels/", "compiler/", "runtime/", "templates/"], ["nlohmann/"]),
    "templates": (["arch/", "formats/", "kernels/", "ops/", "templates/embedded.h"], []),
    "tools": (["tools/", "kernels/", "compiler/", "runtime/", "templates/"],
              ["CLI/", "nlohmann/", "sqlite3.h", "indicators/"]),
}
# CUDA's and NVRTC's own headers, which a machine without them lacks.
NEVER = re.compile(r"cuda|nvrtc|cublas|cudnn", re.IGNORECASE)
# What kernels/ may include of the compiler: its plain data and public face.
PLAIN = ["compiler/compiler.h", "compiler/formats/", "compiler/spec/", "compiler/target/",
         "compiler/tile/"]
INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)


def rule_of(path):
    folders = [folder for folder in RULES if path.startswith(folder + "/")]
    return RULES[max(folders, key=len)] if folders else None


def is_library(name):
    """Of Abseil, the standard library or the system: no folder, or these."""
    return name.startswith(("absl/", "sys/", "linux/")) or "/" not in name


def wrong(path, text):
    rule = rule_of(path)
    if rule is None:
        return []
    ours, others = rule
    device = path.startswith("templates/") and not path.startswith("templates/embedded")
    found = []
    for kind, name in INCLUDE.findall(text):
        if (Path(sys.argv[1]) / name).is_file() or (
                Path(sys.argv[1]) / "templates" / name).is_file() or kind == '"':
            allowed = name.startswith(tuple(ours + others)) or name.startswith("absl/")
        elif device:
            allowed = False
        else:
            allowed = (is_library(name) or name.startswith(tuple(others))) and not NEVER.search(
                name)
        if allowed and path.startswith("kernels/") and name.startswith("compiler/"):
            allowed = name.startswith(tuple(PLAIN))
        if not allowed:
            found.append(f"{path} includes {name}")
    return found


def main():
    root = Path(sys.argv[1])
    names = sorted(str(path.relative_to(root)) for folder in {rule.split("/")[0] for rule in RULES}
                   for path in (root / folder).rglob("*"))
    found = []
    checked = 0
    for name in names:
        if name.endswith((".h", ".cc", ".cuh")) and rule_of(name):
            checked += 1
            found += wrong(name, (root / name).read_text())
    # The check itself: each of these breaks a rule.
    for path, line in [("runtime/x.cc", '#include "compiler/compiler.h"'),
                       ("runtime/x.cc", "#include <mlir/IR/Builders.h>"),
                       ("runtime/cuda/x.cc", "#include <cuda.h>"),
                       ("templates/ops/x.cuh", "#include <cstdint>"),
                       ("compiler/x.cc", '#include "runtime/kernel_store.h"'),
                       ("kernels/x.cc", '#include "llvm/ADT/STLExtras.h"'),
                       ("kernels/x.cc", '#include "compiler/dialect/kv_dialect.h"'),
                       ("runtime/base/x.h", '#include "runtime/cuda/device.h"')]:
        if not wrong(path, line):
            found.append(f"{line} in {path} goes unnoticed")
    print("\n".join(found))
    print(f"{checked} files, {len(found)} includes that their folder may not have")
    return 1 if found or checked < 200 else 0


sys.exit(main())
