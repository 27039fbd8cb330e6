#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Breaks the shared-memory code in one place at a time and shows that a checker of tests/proof notices. A mutant is a patch
# against include/ with a header of plain lines: title, checker (weak or explore), arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage() {
  cat <<'END'
Usage: tests/proof/mutants.sh [--only NAME]... [--checker weak|explore] [--jobs N] [-h|--help]

For each patch of tests/proof/mutants: first runs its checker on the code as it is, which must hold, then on the code with
the patch. A mutant is killed when the checker ends with status 1; anything else is a failure. Builds in build/mutants.

Example: tests/proof/mutants.sh --only 01-record-fill
END
}

only=() checker="" jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --only | --checker | --jobs)
      if [ $# -lt 2 ]; then
        echo "mutants.sh: $1 needs a value" >&2
        exit 2
      fi
      case $1 in
        --only) only+=("$2") ;;
        --checker) checker=$2 ;;
        --jobs) jobs=$2 ;;
      esac
      shift 2
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      echo "mutants.sh: unknown argument '$1'" >&2
      usage >&2
      exit 2
      ;;
  esac
done

if [[ ! $jobs =~ ^[1-9][0-9]*$ ]]; then
  echo "mutants.sh: --jobs is '$jobs', must be a number from 1 on" >&2
  exit 2
fi
for name in "${only[@]}"; do
  if [ ! -f "tests/proof/mutants/$name.patch" ]; then
    echo "mutants.sh: there is no mutant '$name'" >&2
    exit 2
  fi
done

compiler=${CXX:-g++}
library=build/release/libshmcb.a
out=build/mutants
mkdir -p "$out"

field() { # <patch> <name>
  sed -n "s/^$2: //p; /^--- /q" "$1"
}

# compile <checker> <include folder> <program> <arguments>
compile() {
  # Relacy takes long to compile: only the case that the arguments name, and not optimized.
  local flags=(-std=c++20 -DFMT_HEADER_ONLY -DSHMCB_STATIC "-I$2" -Itests) libraries=(-pthread) case_name
  case_name=$(sed -n 's/.*--case  *\([^ ]*\).*/\1/p' <<<"$4")
  case $1 in
    weak) flags+=("-DSHMCB_WEAK_CASE=\"$case_name\"") ;;
    explore)
      flags+=(-O1)
      libraries+=(-lboost_context)
      ;;
    *)
      echo "no such checker: $1"
      return 1
      ;;
  esac
  if [ -f "$library" ]; then
    libraries=("$library" -lrt "${libraries[@]}")
  fi
  "$compiler" "${flags[@]}" "tests/proof/$1.cpp" -o "$3" "${libraries[@]}"
}

# The first line of what was found, and how it is shown again: by the checker that was built with the patch.
finding() { # <log>
  { grep -m1 -E 'FOUND|FAILED|RACE|LIVELOCK' "$1" || grep -m1 -i 'violat' "$1" || head -n 1 "$1"; } | sed 's/^ *//; s/, in *$//'
}

again() { # <folder>
  local how
  how=$(sed -n 's/^ *again: *\(.*\)/\1/p' "$1/finding.log" | head -n 1)
  # The explorer begins with its own path.
  case $how in
    '') ;;
    /* | build/*) echo "; again: $how" ;;
    *) echo "; again: $1/checker $how" ;;
  esac
}

# attempt <patch>: one line about it to stdout; what was compiled and found to build/mutants/<name>.
attempt() {
  local patch=$1 name dir kind arguments title begin base code=0 words
  name=$(basename "$patch" .patch)
  dir=$out/$name
  kind=$(field "$patch" checker)
  arguments=$(field "$patch" arguments)
  title=$(field "$patch" title)
  rm -rf "$dir"
  mkdir -p "$dir"
  cp -r include "$dir/include"
  if ! git apply -p1 --directory="$dir" "$patch" >"$dir/patch.log" 2>&1 ||
    diff -rq include "$dir/include" >/dev/null; then
    echo "FAILED    $name: the patch does not apply ($dir/patch.log)"
    return
  fi
  if ! compile "$kind" "$dir/include" "$dir/checker" "$arguments" >"$dir/compile.log" 2>&1; then
    echo "FAILED    $name: does not compile ($dir/compile.log)"
    return
  fi
  read -r -a words <<<"$arguments"
  begin=$EPOCHREALTIME
  "$dir/checker" "${words[@]}" >"$dir/finding.log" 2>&1 || code=$?
  base=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f s", b - a }')
  case $code in
    1) echo "killed    $name: $title ($base): $(finding "$dir/finding.log")$(again "$dir")" ;;
    0) echo "SURVIVED  $name: $title ($base)" ;;
    *) echo "FAILED    $name: the checker ended with status $code ($dir/finding.log)" ;;
  esac
}

# intact <checker> <arguments>: the code as it is must hold under them.
intact() {
  local dir words code=0
  dir=$out/intact-$(md5sum <<<"$1 $2" | cut -c1-12)
  mkdir -p "$dir"
  if [ -x "build/release/tests/proof/shmcb-prove-$1" ]; then
    cp "build/release/tests/proof/shmcb-prove-$1" "$dir/checker"
  elif ! compile "$1" include "$dir/checker" "$2" >"$dir/compile.log" 2>&1; then
    echo "FAILED    unchanged, $1 $2: does not compile ($dir/compile.log)"
    return
  fi
  read -r -a words <<<"$2"
  "$dir/checker" "${words[@]}" >"$dir/finding.log" 2>&1 || code=$?
  if [ "$code" -eq 0 ]; then
    echo "holds     unchanged, $1 $2"
  else
    echo "FAILED    unchanged, $1 $2: status $code ($dir/finding.log)"
  fi
}

patches=()
for patch in tests/proof/mutants/*.patch; do
  name=$(basename "$patch" .patch)
  if [ ${#only[@]} -gt 0 ] && [[ " ${only[*]} " != *" $name "* ]]; then
    continue
  fi
  if [ -n "$checker" ] && [ "$(field "$patch" checker)" != "$checker" ]; then
    continue
  fi
  patches+=("$patch")
done
if [ ${#patches[@]} -eq 0 ]; then
  echo "mutants.sh: no such mutant" >&2
  exit 2
fi

report=$out/report.txt
: >"$report"
# Each line is written whole, by one `echo`; at most `jobs` at a time.
run_one() {
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
    wait -n || true
  done
  "$@" | tee -a "$report" &
}
declare -A seen=()
for patch in "${patches[@]}"; do
  key="$(field "$patch" checker) $(field "$patch" arguments)"
  if [ -z "${seen[$key]:-}" ]; then
    seen[$key]=1
    run_one intact "$(field "$patch" checker)" "$(field "$patch" arguments)"
  fi
done
for patch in "${patches[@]}"; do
  run_one attempt "$patch"
done
wait
passed=$(grep -cE '^killed' "$report" || true)
failed=$(grep -cE '^(SURVIVED|FAILED)' "$report" || true)
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -eq ${#patches[@]} ]
