"""Runs every command of the README and of the guides that it points to.

Usage: readme_commands.py ROOT BUILD C_COMPILER

A command is a line of an indented block, or a word group between back quotes
that begins with build/bin/ or scripts/. Each is a row of COMMANDS below, which
says what is run for it: the line itself with its placeholders filled in, in a
folder of links to the sources and the build. A command without a row fails the
test, and so does a row whose command no document has.

No GPU is used: what needs one is run up to its refusal. What takes minutes is
left to the test that runs it, which has to exist.
"""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

DOCUMENTS = ("README.md", "docs/tuning.md", "docs/performance.md",
             "docs/validation.md", "docs/score.md", "docs/c_api.md")

SPEC = "decode/e4m3_row/d128/g4/page16/bf16"
EXTEND = "extend/e4m3_row/d128/g4/page16/bf16"
SCORE = "479c88ba3c54e9a26373095a00c4b6fe"
NO_GPU = r"driver|no GPU"


@dataclasses.dataclass
class Command:
    text: str          # as the document has it, without its comment
    run: str = ""      # what is run instead; "" = the text
    code: int = 0      # exit code
    output: str = ""   # a regular expression that the output matches
    test: str = ""     # the ctest test that runs it; nothing is run here
    ci: str = ""       # the line of .ci/run that runs it; likewise
    program: str = ""  # a source that has every call of the line; likewise
    gpu: bool = False  # needs a GPU: `code` and `output` are its refusal's
    nvrtc: bool = False
    pkg_config: bool = False


PRIME_FOR_IMPORT = "merge/d64/f32 merge/d64/bf16 merge/d128/f32"

COMMANDS = (
    Command("scripts/demo", output=r"demo: ok$"),
    Command("scripts/test", ci="scripts/test"),

    # Calls of the C++ and C interfaces.
    Command("Engine::Create(options)", program="examples/minimal_engine.cc"),
    Command(f'ParseSpec("{SPEC}/window=4096")', program="examples/minimal_engine.cc"),
    Command("engine->Prepare(spec)", program="examples/minimal_engine.cc"),
    Command("RunStore / RunDecode / RunExtend(kernel, args, stream)",
            program="examples/minimal_engine.cc"),
    Command("kvforge_engine_options options = {.struct_size = sizeof(options)};",
            program="examples/c_client.c"),
    Command("kvforge_engine_options_from_environment(&options);",
            program="examples/c_client.c"),
    Command("kvforge_engine_create(&options, &engine);", program="examples/c_client.c"),
    Command(f'kvforge_check_spec("{SPEC}", "sm_90");', program="kernels/c_api.h"),
    Command("kvforge_cache_plane_buffer_bytes(&geometry, side, plane, pages, &bytes);",
            program="kernels/c_api.h"),
    Command("kvforge_cache_make_view(&geometry, side, codes, scales, NULL, &view);",
            program="examples/c_client.c"),
    Command("kvforge_prepare(engine, spec, &kernel);", program="examples/c_client.c"),
    Command("kvforge_choose_decode_grid(engine, kernel, batch, kv_heads, &grid);",
            program="kernels/c_api.h"),
    Command("kvforge_decode_workspace_bytes(kernel, &grid, &bytes);",
            program="kernels/c_api.h"),
    Command("kvforge_choose_extend(engine, spec, &sizes, granted, &on_images, &bytes);",
            program="kernels/c_api.h"),
    Command("kvforge_prepare_extend_on_images(engine, spec, &kernel);",
            program="kernels/c_api.h"),
    Command("kvforge_extend_workspace_bytes(kernel, &sizes, &bytes);",
            program="kernels/c_api.h"),
    Command("kvforge_run_store / run_decode / run_extend / run_merge / run_gather"
            "(kernel, &args, stream)", program="kernels/c_api.h"),
    Command("kvforge_kernel_release(kernel);", program="examples/c_client.c"),
    Command("kvforge_engine_destroy(engine);", program="examples/c_client.c"),
    Command("func.func @any_name(%score: f32, %q_position: i32, %kv_position: i32, "
            "%q_head: i32) -> f32", test="score_prints_the_digest"),

    # Installed.
    Command("cmake --install build --prefix PREFIX"),
    Command("find_package(kvforge) ... target_link_libraries(engine PRIVATE "
            "kvforge::kvforge)", test="install_consumer"),
    Command("cc engine.c $(PKG_CONFIG_PATH=PREFIX/lib/pkgconfig pkg-config --cflags "
            "--libs kvforge)", pkg_config=True,
            run="CC -o from_c engine.c $(PKG_CONFIG_PATH=PREFIX/lib/pkgconfig pkg-config "
                "--cflags --libs kvforge) && LD_LIBRARY_PATH=PREFIX/lib ./from_c"),
    Command('PYTHONPATH=PREFIX/share/kvforge python3 -c "import kvforge_ctypes; '
            'kvforge_ctypes.load()"'),

    # A score function.
    Command("build/bin/kvforge score examples/relative_bias.mlir",
            output=rf"score={SCORE}$"),
    Command(f"build/bin/kvforge emit {SPEC} --gpu sm_80 --score "
            "examples/relative_bias.mlir", output="float UserScore"),
    Command(f"build/bin/kvforge prime {SPEC} --score examples/relative_bias.mlir "
            "--gpus sm_90 --cache DIR", output="1 compiled, 0 found, 0 failed",
            nvrtc=True),

    # The command.
    Command("build/bin/kvforge formats", output="nvfp4_row"),
    Command("build/bin/kvforge gpus", output="sm_121"),
    Command(f"build/bin/kvforge emit {SPEC} --gpu sm_89 --stage cuda",
            run=f"for stage in ir placed codec tiled cuda; do build/bin/kvforge emit {SPEC} "
                "--gpu sm_89 --stage $stage || exit; done",
            output=r"kv\.[^$]*kvforge_kernel|kernels/decode.cuh"),
    Command("build/bin/kvforge tile extend/e4m3_row/d256/g8/page16/bf16 --gpu sm_86",
            output="sm_86"),
    Command("build/bin/kvforge tune SPEC... --db tiles.db", gpu=True, code=4,
            run=f"build/bin/kvforge tune {SPEC} --db gpu.db", output=NO_GPU),
    Command("build/bin/kvforge run", test="run_all_formats"),
    Command("build/bin/kvforge check tests/golden/attention/*.safetensors --allow-refused",
            test="check_golden"),
    Command("build/bin/kvforge prime SPEC... --gpus sm_80,sm_90 --cache DIR",
            run="build/bin/kvforge prime merge/d64/f32 --gpus sm_80,sm_90 --cache DIR",
            output="2 compiled, 0 found, 0 failed", nvrtc=True),
    Command("build/bin/kvforge prime --model DIR --gpus sm_90 --cache DIR",
            run="build/bin/kvforge prime --model MODEL --kernels merge --gpus sm_90 "
                "--cache DIR", output="1 compiled, 0 found, 0 failed", nvrtc=True),
    Command("build/bin/kvforge bench --cache DIR --strict", gpu=True, code=4,
            output=NO_GPU),
    Command("build/bin/kvforge verify DIR", nvrtc=True,
            output="entries whole, [0-9]+ of the manifest, 0 problems"),
    Command("build/bin/kvforge cache import PART... --cache DIR", nvrtc=True,
            run="build/bin/kvforge cache import DIR --cache IMPORTED",
            output="written, 0 present, 0 problems"),
    Command("seq 0 7 | xargs -P 8 -I{} build/bin/kvforge prime SPECS --gpus sm_90 "
            "--shard {}/8 --cache part-{}", nvrtc=True,
            run=f"seq 0 7 | xargs -P 8 -I{{}} build/bin/kvforge prime {PRIME_FOR_IMPORT} "
                "--gpus sm_90 --shard {}/8 --cache part-{}"),
    Command("build/bin/kvforge cache import part-* --cache DIR && build/bin/kvforge "
            "verify DIR", nvrtc=True,
            output="[0-9]+ problems\n.*entries whole, [0-9]+ of the manifest, 0 problems"),
    Command("build/bin/kvforge formats --table", output=r"\| `bf16` \|"),
    Command("build/bin/kvforge-opt", run="build/bin/kvforge emit merge/d64/f32 --gpu sm_80 "
            "--stage ir | build/bin/kvforge-opt -", output="kv.merge"),

    # Tiles.
    Command(f"build/bin/kvforge tune {SPEC} {EXTEND} --db tiles.db", gpu=True, code=4,
            run=f"build/bin/kvforge tune {SPEC} {EXTEND} --db gpu.db", output=NO_GPU),
    Command("build/bin/kvforge tune --db tiles.db --export winners.json",
            output="winners of"),
    Command(f"build/bin/kvforge prime {SPEC} --gpus sm_90 --cache DIR --tune-db "
            "winners.json", output="1 compiled, 0 found, 0 failed", nvrtc=True),
    Command("KVFORGE_TUNE_DB=winners.json ./engine", output="OK"),
    Command(f"build/bin/kvforge tune {EXTEND} --target host --check-only --gpu sm_90",
            test="tune_checks_on_the_cpu"),

    # Speed.
    Command("build/bin/kvforge bench --cache build/gpu-cache --strict --json now.json "
            "--svg now.svg", gpu=True, code=4, output=NO_GPU),
    Command("build/bin/kvforge bench --cache build/gpu-cache --strict decode/e4m3_row "
            "'store/*/t64' --against before.json", gpu=True, code=4, output=NO_GPU),
    Command("build/bin/kvforge bench prepare --cache build/gpu-cache --strict", gpu=True,
            code=4, output=NO_GPU),
    Command("build/bin/argument_checks_bench"),
    Command("python3 tests/bench/peers/peers.py", gpu=True,
            test="peers_names_what_is_missing"),
    Command("python3 tests/bench/peers/peers.py --dry-run", test="peers_dry_run"),
    Command("scripts/gpu_prime", run="scripts/gpu_prime --list-specs",
            output=rf"(?m)^{EXTEND}$"),
    Command("scripts/gpu_check", gpu=True, code=1, output="gpu_check: no GPU"),

    Command("KVFORGE_CACHE_DIR=build/gpu-cache KVFORGE_JIT=off build/bin/case_suite_test "
            "--target cuda --gtest_filter='TwoGpus.*'", gpu=True, code=77,
            output="skipped: "),

    # Care of the tests.
    Command("scripts/mutate --only ID", run="scripts/mutate --only merge-weights-in-base-2",
            output="1 mutants, 1 killed, 0 survived, 0 invalid"),
    Command("scripts/mutate", run="scripts/mutate --list",
            output="merge-weights-in-base-2"),
    Command("scripts/compile_all", test="compiled_facts_test"),
    Command("scripts/fuzz", test="fuzz"),
)


def normal(text):
    return " ".join(text.split())


def commands_of(text):
    """The commands of a document, comments cut off."""
    for line in text.splitlines():
        if line.startswith("    "):
            line = re.sub(r"(^|\s)(# |// ).*$", "", line).strip()
            line = re.sub(r"\s+// .*$", "", line)
            if line:
                yield normal(line)
        for quoted in re.findall(r"`((?:build/bin|scripts)/[^`]*)`", line):
            yield normal(quoted)


def make_folder(root, build, folder):
    """Links to sources and build, and what the placeholders stand for."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "scripts").mkdir(parents=True)
    for name in ("tests", "examples", "docs", "kernels"):
        (folder / name).symlink_to(root / name)
    (folder / "build").symlink_to(build)
    for script in (root / "scripts").iterdir():
        # They go to the folder above the one they lie in: copies stay here.
        if script.name != "mutate":
            shutil.copy2(script, folder / "scripts")
    (folder / "scripts/mutate").symlink_to(root / "scripts/mutate")
    # The build is there.
    (folder / "scripts/build").write_text("#!/bin/sh\n")
    (folder / "engine.c").symlink_to(root / "tests/install/c/consumer.c")
    (folder / "engine").symlink_to(build / "bin/minimal_engine")
    (folder / "model").mkdir()
    (folder / "model/config.json").write_text(
        '{"model_type": "gpt_oss", "num_hidden_layers": 2, "num_attention_heads": 16,'
        ' "num_key_value_heads": 2, "sliding_window": 128, "torch_dtype": "bfloat16"}')
    (folder / "before.json").write_text(json.dumps({
        "kvforge_bench": 1, "gpu": "", "driver_cuda_version": 0, "measured_at": "",
        "ceilings": {"read_gb_per_s": 0, "copy_gb_per_s": 0, "mma_tflop_per_s": 0,
                     "missing": "", "stream": []}, "results": []}))
    with sqlite3.connect(folder / "tiles.db") as table:
        table.execute(
            "CREATE TABLE timing(device TEXT NOT NULL, spec TEXT NOT NULL,"
            "shape TEXT NOT NULL, candidate TEXT NOT NULL, version TEXT NOT NULL,"
            "gpu TEXT NOT NULL, verdict TEXT NOT NULL, note TEXT NOT NULL,"
            "median_us REAL NOT NULL, spread REAL NOT NULL, samples INTEGER NOT NULL,"
            "registers INTEGER NOT NULL, shared_bytes INTEGER NOT NULL,"
            "spill_bytes INTEGER NOT NULL, measured_at TEXT NOT NULL,"
            "PRIMARY KEY(device, spec, shape, candidate, version)) WITHOUT ROWID")
        table.execute("PRAGMA user_version=1")


def main():
    root, build, compiler = (pathlib.Path(part) for part in sys.argv[1:4])
    folder = build / "readme-commands"
    make_folder(root, build, folder)
    environment = dict(os.environ, CUDA_VISIBLE_DEVICES="",
                       KVFORGE_CACHE_DIR=str(build / "test-kernels"))
    # Reports of GoogleTest binaries that a command runs are none of this run's.
    environment.pop("GTEST_OUTPUT", None)

    def shell(line):
        done = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=folder,
                              env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
        return done.returncode, done.stdout

    # What the placeholders stand for; DIR is one folder, which several prime.
    filled = {"PREFIX": "prefix", "MODEL": "model", "IMPORTED": "imported",
              "CC": str(compiler), "DIR": "primed"}

    def fill(line):
        return re.sub(r"\b(" + "|".join(filled) + r")\b",
                      lambda found: filled[found.group()], line)

    code, _ = shell("build/bin/kvforge emit merge/d128/bf16 --gpu sm_80 --stage ptx")
    has_nvrtc = code == 0
    has_pkg_config = shutil.which("pkg-config") is not None
    code, names = shell("ctest --test-dir build -N")
    tests = set(re.findall(r"Test +#\d+: (\S+)", names))

    rows = {normal(row.text): row for row in COMMANDS}
    assert len(rows) == len(COMMANDS), "a command has two rows"
    found, problems = {}, []
    for document in DOCUMENTS:
        for command in commands_of((root / document).read_text()):
            if command in rows:
                found.setdefault(command, document)
            else:
                problems.append(f"{document}: no row of {pathlib.Path(__file__).name} "
                                f"says what to run for: {command}")
    for command in rows:
        if command not in found:
            problems.append(f"no document has the command of a row: {command}")

    counts = dict.fromkeys(("run", "refused", "elsewhere", "skipped"), 0)
    for command, row in rows.items():
        if command not in found:
            continue
        if row.program:
            source = (root / row.program).read_text()
            calls = set(re.findall(r"\w+(?=[ (/])|(?<=/ )\w+", command.split("(")[0] + "("))
            for call in sorted(calls):
                if not re.search(rf"\b(kvforge_)?{call}\b", source):
                    problems.append(f"{row.program} has no {call}, which "
                                    f"{found[command]} has: {command}")
            counts["elsewhere"] += 1
            continue
        if row.test or row.ci:
            if row.test and row.test not in tests:
                problems.append(f"{row.test}, said to run it, is no test: {command}")
            if row.ci and row.ci not in (root / ".ci/run").read_text():
                problems.append(f".ci/run does not run {row.ci}")
            counts["refused" if row.gpu else "elsewhere"] += 1
            continue
        if row.nvrtc and not has_nvrtc or row.pkg_config and not has_pkg_config:
            print(f"skipped, needs {'NVRTC' if row.nvrtc else 'pkg-config'}: {command}")
            counts["skipped"] += 1
            continue
        line = fill(row.run or row.text)
        code, output = shell(line)
        if code != row.code or not re.search(row.output, output.rstrip("\n")):
            problems.append(f"{found[command]}: {command}\n  ran: {line}\n  exit {code}, "
                            f"expected {row.code} and {row.output!r}\n{output[-2000:]}")
        counts["refused" if row.gpu else "run"] += 1
    for problem in problems:
        print(problem)
    print(f"{len(found)} commands: {counts['run']} run, {counts['refused']} that need a GPU "
          f"run to their refusal, {counts['elsewhere']} left to other tests, "
          f"{counts['skipped']} skipped; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
