#!/usr/bin/env python3
"""From a tuning table to a primed cache: `kvforge tune --export` keeps the winner
of this build's kernels and `kvforge prime --tune-db` compiles its tile.

Usage: check_tune.py KVFORGE FOLDER
"""
import json
import pathlib
import shutil
import sqlite3
import subprocess
import sys

SPEC = "decode/bf16/d64/g4/page16/bf16"
TILES = ("8x32/2/2", "8x16/3/1")
SKIPPED = 77

kvforge, folder = sys.argv[1], pathlib.Path(sys.argv[2])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)


def run(*arguments):
    done = subprocess.run([kvforge, *arguments], capture_output=True, text=True)
    if "NVRTC" in done.stderr + done.stdout and done.returncode:
        print("skipped: tiles of winners were not compiled: no NVRTC")
        sys.exit(SKIPPED)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


# The digests of both kernels, from a manifest.
lines = folder / "lines.specs"
lines.write_text("".join(f"{SPEC} {tile}\n" for tile in TILES))
run("prime", str(lines), "--gpus", "sm_80", "--cache", str(folder / "first"))
manifest = json.loads((folder / "first/manifest.json").read_text())
kernels = manifest["kernels"] if isinstance(manifest, dict) else manifest
digests = {kernel["tile"]: kernel["key"] for kernel in kernels}

table = folder / "tiles.db"
with sqlite3.connect(table) as database:
    database.execute(
        "CREATE TABLE timing(device TEXT NOT NULL, spec TEXT NOT NULL,"
        "shape TEXT NOT NULL, candidate TEXT NOT NULL, version TEXT NOT NULL,"
        "gpu TEXT NOT NULL, verdict TEXT NOT NULL, note TEXT NOT NULL,"
        "median_us REAL NOT NULL, spread REAL NOT NULL, samples INTEGER NOT NULL,"
        "registers INTEGER NOT NULL, shared_bytes INTEGER NOT NULL,"
        "spill_bytes INTEGER NOT NULL, measured_at TEXT NOT NULL,"
        "PRIMARY KEY(device, spec, shape, candidate, version)) WITHOUT ROWID")
    database.execute("PRAGMA user_version=1")
    for tile, version, median in ((TILES[0], digests[TILES[0]], 12.0),
                                  (TILES[1], digests[TILES[1]], 13.0),
                                  (TILES[1], "of another build", 1.0)):
        database.execute(
            "INSERT INTO timing VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            ("a GPU", SPEC, "b1/h8/q1/kv1024", tile, version, "sm_80", "timed",
             "", median, 0.01, 9, 128, 1024, 0, "2025-01-31T12:00:00Z"))

winners = folder / "winners.json"
said = run("tune", "--db", str(table), "--export", str(winners))
assert "2 winners of 2 timings" in said and "1 are of other builds" in said, said
rows = json.loads(winners.read_text())["winners"]
assert {(row["shape"], row["candidate"]) for row in rows} == {
    ("", TILES[0]), ("b1/h8/q1/kv1024", TILES[0])}, rows

# Beside the selector's tile the winner's is compiled, for its GPU only.
run("prime", SPEC, "--gpus", "sm_80,sm_89", "--cache", str(folder / "second"),
    "--tune-db", str(winners))
manifest = json.loads((folder / "second/manifest.json").read_text())
kernels = manifest["kernels"] if isinstance(manifest, dict) else manifest
tiles = {gpu: {k["tile"] for k in kernels if k["gpu"] == gpu}
         for gpu in ("sm_80", "sm_89")}
assert TILES[0] in tiles["sm_80"] and len(tiles["sm_80"]) == 2, tiles
assert len(tiles["sm_89"]) == 1, tiles
print("winners: exported, primed")
