#!/usr/bin/env python3
"""Compares examples/kvforge_ctypes.py with kernels/c_api.h: sizes and offsets of
every struct as a compiled C program prints them, types of fields and arguments,
constants, and that neither has what the other lacks.

Usage: check_ctypes.py HEADER DECLARATIONS C_COMPILER FOLDER
"""
import ctypes
import importlib.util
import pathlib
import re
import subprocess
import sys

header, declarations, compiler, folder = sys.argv[1:]
text = re.sub(r"//[^\n]*", "", pathlib.Path(header).read_text())
module = importlib.util.spec_from_file_location("kvforge_ctypes", declarations)
ours = importlib.util.module_from_spec(module)
module.loader.exec_module(ours)
failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)


def class_name(c_name):
    return "".join(part.title() for part in c_name.split("_")[1:])


# ---- Structs: {"kvforge_plane": [("int64_t", "offset"), ...]}
structs = {}
for body, name in re.findall(r"typedef struct \{(.*?)\} (\w+);", text, re.S):
    fields = [re.fullmatch(r"(.*?)(\w+)", line.strip(), re.S).groups()
              for line in body.split(";") if line.strip()]
    structs[name] = [(" ".join(kind.split()), field) for kind, field in fields]
expect(len(structs) >= 16, f"{header}: only {len(structs)} structs found")

lines = []
for name, fields in structs.items():
    lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
    for _, field in fields:
        lines.append(f'printf("{name}.{field} %zu %zu\\n", '
                     f"offsetof({name}, {field}), "
                     f"sizeof((({name}*)0)->{field}));")
constants = re.findall(r"\b(KVFORGE_\w+) = -?\w+", text) + re.findall(
    r"#define (KVFORGE_\w+) \(?-?\d", text)
expect(len(constants) >= 30, f"{header}: only {len(constants)} constants found")
for name in constants:
    lines.append(f'printf("{name} %lld\\n", (long long){name});')
program = pathlib.Path(folder) / "c_api_layout"
program.with_suffix(".c").write_text(
    f'#include "{header}"\n#include <stdio.h>\nint main(void) {{\n'
    + "\n".join(lines) + "\nreturn 0; }\n")
subprocess.run([compiler, "-std=c11", program.with_suffix(".c"), "-o", program],
               check=True)
printed = {name: [int(number) for number in numbers] for name, *numbers in (
    line.split() for line in subprocess.run(
        [program], check=True, capture_output=True,
        text=True).stdout.splitlines())}

for name, fields in structs.items():
    made = getattr(ours, class_name(name), None)
    if made is None:
        failures.append(f"no class {class_name(name)} for {name}")
        continue
    expect([ctypes.sizeof(made)] == printed[name],
           f"{name}: {printed[name][0]} bytes in C, {ctypes.sizeof(made)} here")
    expect([f[0] for f in made._fields_] == [f[1] for f in fields],
           f"{name}: fields differ: {[f[1] for f in fields]} in C")
    for kind, field in fields:
        if not hasattr(made, field):
            continue
        here = getattr(made, field)
        expect([here.offset, here.size] == printed[f"{name}.{field}"],
               f"{name}.{field}: offset and size {printed[f'{name}.{field}']} "
               f"in C, {[here.offset, here.size]} here")


# ---- Types of fields and arguments
HANDLES = ("kvforge_engine", "kvforge_kernel")
SCALARS = {"int": ctypes.c_int, "int32_t": ctypes.c_int32,
           "int64_t": ctypes.c_int64, "uint8_t": ctypes.c_uint8,
           "uint32_t": ctypes.c_uint32,
           "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
           "float": ctypes.c_float, "double": ctypes.c_double, "void": None,
           "kvforge_log_function": ours.LogFunction}


def ctype(kind):
    kind = " ".join(kind.replace("const ", "").split()).replace(" *", "*")
    if kind in SCALARS:
        return SCALARS[kind]
    if kind in structs:
        return getattr(ours, class_name(kind))
    if not kind.endswith("*"):
        sys.exit(f"{header}: the type {kind} is not known to {sys.argv[0]}")
    target = kind[:-1]
    if target == "char":
        return ctypes.c_char_p
    if target in HANDLES or target == "void":
        return ctypes.c_void_p
    if target[:-1] in HANDLES:
        return ctypes.POINTER(ctypes.c_void_p)
    return ctypes.POINTER(ctype(target))


for name, fields in structs.items():
    here = dict(getattr(getattr(ours, class_name(name), None), "_fields_", []))
    for kind, field in fields:
        expected = ctype(kind)
        # Arrays in the engine's memory are addresses.
        if kind.endswith("*") and re.search(r"float|int\d+_t|uint8_t", kind):
            expected = ctypes.c_void_p
        expect(here.get(field) is expected,
               f"{name}.{field}: {kind} in C, {here.get(field)} here")

functions = re.findall(
    r"^((?:const )?\w+\*?)\s+\*?(kvforge_\w+)\(([^;{]*?)\);", text, re.M)
expect(len(functions) >= 28, f"{header}: only {len(functions)} calls found")
for result, name, arguments in functions:
    here = ours.FUNCTIONS.get(name[len("kvforge_"):])
    if here is None:
        failures.append(f"{name}: not declared here")
        continue
    kinds = [ctype(re.match(r"(.*?)\w+$", a.strip(), re.S)[1])
             for a in arguments.split(",") if a.strip() != "void"]
    expect(here == (ctype(result), kinds),
           f"{name}: {(ctype(result), kinds)} in C, {here} here")
expect(len(functions) == len(ours.FUNCTIONS),
       f"{len(functions)} calls in C, {len(ours.FUNCTIONS)} here")

# ---- Constants
for name, value in vars(ours).items():
    if name.isupper() and isinstance(value, int):
        in_c = printed.get("KVFORGE_C_ABI" if name == "ABI"
                           else f"KVFORGE_{name}")
        expect(in_c == [value], f"{name}: {in_c} in C, {value} here")

for failure in failures:
    print(failure)
print(f"{len(structs)} structs, {len(functions)} calls, {len(constants)} "
      f"constants of {pathlib.Path(header).name}: {len(failures)} differences")
sys.exit(1 if failures else 0)
