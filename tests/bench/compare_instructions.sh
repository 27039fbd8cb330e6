#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What bench/compare_instructions says to tables that fit and to doctored ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../bench"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
table=$scratch/table counts=$scratch/counts

# expect <code> <words>: of comparing the two files.
expect() {
  local code=0 said
  said=$(./compare_instructions "$table" "$counts" 2>&1) || code=$?
  if [ "$code" -ne "$1" ] || [[ "$said" != *"$2"* ]]; then
    printf 'line %d: expected %d and "%s", got %d and:\n%s\n' "${BASH_LINENO[0]}" "$1" "$2" "$code" "$said" >&2
    exit 1
  fi
}

lines() {
  printf '%8d  %s\n' "$@"
}

{
  echo '# a comment'
  lines 13 'admit/shared memory' 1000 'call/memory'
} >"$table"

lines 13 'admit/shared memory' 1000 'call/memory' >"$counts"
expect 0 '2 cases, none grew'
lines 16 'admit/shared memory' 1020 'call/memory' >"$counts"
expect 0 '2 cases, none grew'
lines 17 'admit/shared memory' 1000 'call/memory' >"$counts"
expect 1 'admit/shared memory: was 13, is 17, the limit is 16'
lines 13 'admit/shared memory' 1021 'call/memory' >"$counts"
expect 1 'call/memory: was 1000, is 1021, the limit is 1020'
expect 1 'tools/bench --instructions --renew'
lines 13 'admit/shared memory' 900 'call/memory' >"$counts"
expect 0 'call/memory: was 1000, is 900: it shrank'

lines 13 'admit/shared memory' >"$counts"
expect 1 "call/memory: is in $table and was not counted"
lines 13 'admit/shared memory' 1000 'call/memory' 5 'new' >"$counts"
expect 1 "new: is not in $table"
lines 13 'admit/shared memory' 1000 'call/memory' 1000 'call/memory' >"$counts"
expect 1 'counts:3: call/memory is there twice'
lines 13 'admit/shared memory' >"$counts"
echo 'call/memory' >>"$counts"
expect 1 "counts:2: 'call/memory' is not"
: >"$counts"
expect 1 'nothing was counted'
: >"$table"
lines 13 'admit/shared memory' >"$counts"
expect 1 "admit/shared memory: is not in $table"
rm "$table"
expect 2 'table'
