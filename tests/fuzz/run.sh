#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the fuzzers, one after the other, from the inputs in tests/data/fuzz. What they find on the way is collected in
# build/fuzz/inputs; what ends one of them goes to tests/data/fuzz, where the tests find it: mend the cause, keep it.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools/lib.sh
. tools/lib.sh

all=(words segment header reader config trace text)

usage() {
  cat <<TEXT
Usage: tests/fuzz/run.sh [--seconds N] [--target NAME]... [--keep] [-h|--help]

  --seconds N    for each target (default 60)
  --target NAME  only this one: ${all[*]}; may be repeated
  --keep         afterwards, adds to tests/data/fuzz what covers more than is kept there

Exit status: 0 nothing found, 1 something found, 2 usage.
TEXT
}

refuse() {
  echo "tests/fuzz/run.sh: $1" >&2
  exit 2
}

seconds=60
keep=
targets=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds | --target)
      if [ $# -lt 2 ]; then refuse "$1 needs a value"; fi
      if [ "$1" = --seconds ]; then seconds=$2; else targets+=("$2"); fi
      shift
      ;;
    --keep) keep=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) refuse "unknown argument '$1'; --help names those there are" ;;
  esac
  shift
done
if [[ ! $seconds =~ ^[1-9][0-9]{0,6}$ ]]; then # 0 would be for ever
  refuse "--seconds is '$seconds', must be a number of seconds from 1 to 9999999"
fi
for target in "${targets[@]}"; do
  if ! grep -qxFe "$target" < <(printf '%s\n' "${all[@]}"); then
    refuse "--target is '$target', must be one of: ${all[*]}"
  fi
done
if [ ${#targets[@]} -eq 0 ]; then targets=("${all[@]}"); fi

need_packages "${base_packages[@]}" "${clang_packages[@]}"
build_preset fuzz --target "${targets[@]/#/shmcb-fuzz-}"

export UBSAN_OPTIONS=print_stacktrace=1
trap 'rm -f /dev/shm/shmcb.fuzz-*' EXIT
for target in "${targets[@]}"; do
  heading "Fuzzing $target for $seconds s"
  program=build/fuzz/tests/shmcb-fuzz-$target
  kept=tests/data/fuzz/$target
  inputs=build/fuzz/inputs/$target
  log=build/fuzz/inputs/$target.log
  mkdir -p "$inputs"
  code=0
  "$program" -max_total_time="$seconds" -timeout=60 -report_slow_units=60 -max_len=4096 -len_control=0 -print_funcs=0 \
    -print_final_stats=1 -artifact_prefix="$kept/" "$inputs" "$kept" >"$log" 2>&1 || code=$?
  executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  covered=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1)
  echo "${executed:-?} executions, ${covered:-cov: ?} edges"
  if [ "$code" -eq 0 ]; then
    total_passed=$((total_passed + 1))
  else
    total_failed=$((total_failed + 1))
    grep -E 'runtime error|fuzz target|SUMMARY|Test unit written' "$log" || tail -n 40 "$log"
  fi
  if [ -n "$keep" ]; then
    # By edges alone: a few hundred bytes each, some hundred files in all.
    "$program" -merge=1 -use_counters=0 -print_funcs=0 "$kept" "$inputs" >>"$log" 2>&1 || echo "could not merge $target"
  fi
done
summary
