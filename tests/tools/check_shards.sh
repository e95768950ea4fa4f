#!/usr/bin/env bash
# Eight processes prime a list in shards, each into its own folder and all into
# one; put together, both are the folder that one process primes, byte for byte:
# every entry and manifest.json.
#   check_shards.sh KVFORGE FOLDER
set -euo pipefail
kvforge=$1
folder=$2
shards=8
export KVFORGE_CACHE_DIR= LC_ALL=C

fail() { echo "check_shards: $*" >&2; exit 1; }
# expect CODE LAST COMMAND...: exit code, and the last line as a glob pattern.
expect() {
  local code=$1 last=$2 result=0
  shift 2
  output=$("$@" 2>&1) || result=$?
  [ "$result" -eq "$code" ] || fail "exit $result, expected $code: $* : $output"
  # shellcheck disable=SC2053
  [[ ${output##*$'\n'} == $last ]] || fail "not '$last': $* : $output"
}

rm -rf "$folder"
mkdir -p "$folder"
for d in 64 80 96 112 128 256; do
  for type in f32 bf16; do echo "merge/d$d/$type"; done
done > "$folder/list.txt"
for format in bf16 e4m3_row; do
  for kernel in store gather; do echo "$kernel/$format/d64/g1/page16/bf16"; done
done >> "$folder/list.txt"
specs=$(wc -l < "$folder/list.txt")

# The CPU's objects, and cubins where there is an NVRTC.
gpus=host-sm_80
targets=1
if "$kvforge" prime merge/d64/f32 --gpus sm_90 --cache "$folder/probe" \
    > /dev/null 2>&1; then
  gpus=host-sm_80,sm_90
  targets=2
fi
total=$((specs * targets))

prime() { "$kvforge" prime "$folder/list.txt" --gpus "$gpus" -j 1 "$@"; }
expect 0 "$total compiled, 0 found, 0 failed in *" prime --cache "$folder/whole"

# Even parts: each shard compiles an eighth.
export kvforge folder gpus shards
seq 0 $((shards - 1)) | xargs -P "$shards" -I{} bash -c '
  "$kvforge" prime "$folder/list.txt" --gpus "$gpus" -j 1 --shard {}/$shards \
    --cache "$folder/part-{}" > "$folder/part-{}.log"'
for i in $(seq 0 $((shards - 1))); do
  grep -q "^$((total / shards)) compiled, 0 found, 0 failed" \
    "$folder/part-$i.log" || fail "shard $i: $(cat "$folder/part-$i.log")"
done
expect 0 "$total written, 0 present, 0 problems" \
  "$kvforge" cache import "$folder"/part-? --cache "$folder/merged"
expect 0 "0 written, $total present, 0 problems" \
  "$kvforge" cache import "$folder"/part-? --cache "$folder/merged"
expect 0 "$total entries whole, $total of the manifest, 0 problems" \
  "$kvforge" verify "$folder/merged"

# All at once into one folder, which another import makes one manifest of.
seq 0 $((shards - 1)) | xargs -P "$shards" -I{} bash -c '
  "$kvforge" prime "$folder/list.txt" --gpus "$gpus" -j 1 --shard {}/$shards \
    --cache "$folder/shared" > /dev/null'
expect 0 "$total written, 0 present, 0 problems" \
  "$kvforge" cache export "$folder/shared" "$folder/from-shared"

# Copies hold entries and the manifest, nothing else.
for name in whole merged; do
  expect 0 "$total written, 0 present, 0 problems" \
    "$kvforge" cache export "$folder/$name" "$folder/copy-$name"
done
rm -rf "$folder/copy-whole/locks" "$folder/copy-merged/locks" \
  "$folder/from-shared/locks"
diff -r "$folder/copy-whole" "$folder/copy-merged" || fail "shards differ"
diff -r "$folder/copy-whole" "$folder/from-shared" || fail "shared differs"
cmp "$folder/whole/manifest.json" "$folder/merged/manifest.json"
files=$(find "$folder/copy-whole" -type f | wc -l)
[ "$files" -eq $((total + 1)) ] || fail "the copy has $files files"
expect 4 "*is not empty*" "$kvforge" cache export "$folder/whole" "$folder/merged"
expect 2 "*no such folder*" \
  "$kvforge" cache import "$folder/none" --cache "$folder/merged"

# Damage in a source is named, what is good is taken, and nothing good in the
# folder is lost.
mapfile -t entries < <(find "$folder/part-0" -name '*.kvk' | sort)
head -c 100 "${entries[0]}" > "$folder/cut"
mv "$folder/cut" "${entries[0]}"
printf 'X' | dd of="${entries[1]}" bs=1 seek=200 conv=notrunc status=none
expect 1 "$((total / shards - 2)) written, 0 present, 4 problems" \
  "$kvforge" cache import "$folder/part-0" --cache "$folder/fresh"
for i in 0 1; do
  [[ $output == *"${entries[$i]}: at byte "* ]] || fail "not named: $output"
done
expect 1 "0 written, $((total / shards - 2)) present, 4 problems" \
  "$kvforge" cache import "$folder/part-0" --cache "$folder/merged"
expect 0 "$total written, 0 present, 0 problems" \
  "$kvforge" cache export "$folder/merged" "$folder/after-damage"
rm -rf "$folder/after-damage/locks"
diff -r "$folder/copy-whole" "$folder/after-damage" || fail "a good entry is lost"

# Runs without shards at once in one folder: no manifest row is lost, though the
# later rounds, with nothing to compile, all write the manifest at one time.
for round in 1 2 3; do
  rm -f "$folder/at-once/manifest.json"
  printf '%s\n' 64 80 96 112 128 144 160 176 | xargs -P 8 -I{} bash -c '
    "$kvforge" prime merge/d{}/f32 --gpus host-sm_80 -j 1 \
      --cache "$folder/at-once" > /dev/null'
  expect 0 "8 entries whole, 8 of the manifest, 0 problems" \
    "$kvforge" verify "$folder/at-once"
done
# A damaged manifest is set aside, and the next run writes another.
echo '{"kernels": [{' > "$folder/at-once/manifest.json"
expect 0 "0 compiled, 1 found, 0 failed in *" "$kvforge" prime merge/d64/f32 \
  --gpus host-sm_80 --cache "$folder/at-once"
[ -e "$folder/at-once/manifest.json.damaged" ] || fail "not set aside"
expect 0 "8 entries whole, 1 of the manifest, 0 problems" \
  "$kvforge" verify "$folder/at-once"
echo "check_shards: ok"
