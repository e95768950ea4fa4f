#!/usr/bin/env bash
# Reading kernels from a primed cache, measured in processes of their own: with
# no compiler mapped, refused with one, and an error that names what is missing.
#   check_fetch.sh KVFORGE JIT_LIBRARY FOLDER
set -euo pipefail
kvforge=$1
jit=$2
folder=$3
export KVFORGE_CACHE_DIR=
cases=(fetch/store/e4m3_row fetch/decode/e4m3_row)

fail() { echo "check_fetch: $*" >&2; exit 1; }

rm -rf "$folder"
mkdir -p "$folder"
"$kvforge" bench "${cases[@]}" --list-specs > "$folder/list.txt"
"$kvforge" prime "$folder/list.txt" --gpus host-sm_80 --cache "$folder/cache"

fetch() { "$kvforge" bench "${cases[@]}" --cache "$folder/cache" --gpu "$@"; }
fetch host-sm_80 --json "$folder/times.json"
# 2 ms is what preparing may take in all; reading this one takes a twentieth.
python3 - "$folder/times.json" <<'CHECK' || fail "reading is slow"
import json, sys
results = {r["name"]: r for r in json.load(open(sys.argv[1]))["results"]}
assert len(results) == 2, results
assert 0 < results["fetch/store/e4m3_row"]["one"]["median_us"] <= 2000, results
CHECK

output=$(LD_PRELOAD=$jit fetch host-sm_80 2>&1) && fail "a mapped compiler is no error"
[[ $output == *"libkvforge_jit"*"mapped"* ]] || fail "not named: $output"
output=$(fetch sm_80 2>&1) && fail "a kernel that is missing is no error"
[[ $output == *"no compiled kernel for spec=store/e4m3_row"* ]] || fail "$output"
echo "check_fetch: ok"
