#!/usr/bin/env bash
# Kills `kvforge prime` ROUNDS times at random moments, then lets it end: the
# folder is whole and complete, and runs before it are not done again.
#   check_kill.sh KVFORGE FOLDER [ROUNDS]
set -euo pipefail
kvforge=$1
folder=$2
rounds=${3:-25}
export KVFORGE_CACHE_DIR= LC_ALL=C

rm -rf "$folder"
mkdir -p "$folder"
for d in 64 80 96 112 128 144 160 176 192 208; do
  for type in f32 bf16 f16; do echo "merge/d$d/$type"; done
done > "$folder/list.txt"
specs=$(wc -l < "$folder/list.txt")
prime() {
  "$kvforge" prime "$folder/list.txt" --gpus host-sm_80 -j 2 \
    --cache "$folder/cache"
}
RANDOM=${SEED:-$$}
echo "seed ${SEED:-$$}"
killed=0
for ((round = 0; round < rounds; ++round)); do
  "$kvforge" prime "$folder/list.txt" --gpus host-sm_80 -j 2 \
    --cache "$folder/cache" > /dev/null 2> "$folder/errors" &
  child=$!
  sleep "$(printf '0.%03d' $((RANDOM % 700)))"
  if kill -9 "$child" 2> /dev/null; then killed=$((killed + 1)); fi
  wait "$child" 2> /dev/null || true
  if [ -s "$folder/errors" ]; then cat "$folder/errors"; exit 1; fi
  # Half of the rounds begin with less, so that there is work to be killed in.
  if ((round % 2)); then
    find "$folder/cache" -name '*.kvk' 2> /dev/null | head -n 10 | xargs -r rm
  fi
done
there=$(find "$folder/cache" -name '*.kvk' | wc -l)
last=$(prime 2>&1 | tail -n 1)
[[ $last == "$((specs - there)) compiled, $there found, 0 failed in "* ]] ||
  { echo "after $killed kills, $there entries: $last"; exit 1; }
last=$("$kvforge" verify "$folder/cache" | tail -n 1)
[ "$last" = "$specs entries whole, $specs of the manifest, 0 problems" ] ||
  { echo "$last"; exit 1; }

# Files of 4 KiB at most stand for a disk that is full: nothing is claimed that
# is not there.
status=0
full=$(trap '' XFSZ; ulimit -f 4; "$kvforge" prime merge/d64/f32 \
  --gpus host-sm_80 --cache "$folder/full" 2>&1) || status=$?
[[ $status -eq 1 && $full == *"failed: merge/d64/f32 for host-sm_80: compiled, but not written"* ]] ||
  { echo "a full disk: exit $status, $full"; exit 1; }
[ -z "$(find "$folder/full" -name '*.kvk*' -o -name '.tmp-*')" ] ||
  { echo "a full disk: a part of a file is left"; exit 1; }
echo "check_kill: ok, $killed of $rounds runs killed"
