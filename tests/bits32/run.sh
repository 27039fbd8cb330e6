#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# A process of 32 bits is refused: by the compiler, and where that is talked into the alignments of 64 bits, at attach.
# Exits 77 where there is no compiler for 32 bits (Debian: g++-12-multilib).
# run.sh <compiler> <top folder> <shmcb-inspect>
set -euo pipefail

cxx=$1 top=$2 inspect=$3
scratch=$(mktemp -d)
segment=bits32-$$
trap 'rm -rf "$scratch" "/dev/shm/shmcb.$segment"' EXIT
cd "$scratch"

# The kernel's headers are those of the 64-bit system.
flags=(-std=c++20 -O0 -w -m32 -idirafter "/usr/include/$(uname -m)-linux-gnu" "-I$top/include" -DSHMCB_STATIC)

printf '#include <string>\n#include <errno.h>\nint main() { return std::string{}.size() != 0; }\n' >probe.cpp
if ! { "$cxx" "${flags[@]}" probe.cpp -o probe && ./probe; } 2>probe.log; then
  echo "skipped: $cxx makes no programs of 32 bits (Debian: g++-12-multilib)"
  exit 77
fi

if "$cxx" "${flags[@]}" -fsyntax-only "$top/tests/bits32/attach.cpp" 2>refused.log; then
  echo "the compiler takes it" >&2
  exit 1
fi
grep -q 'the same on every 64-bit target' refused.log || {
  cat refused.log >&2
  exit 1
}

"$cxx" "${flags[@]}" -malign-double -c "$top/tests/bits32/attach.cpp" \
  "$top"/src/shm/{futex,mapped_memory,participants,segment,segment_files,sigbus_guard}.cpp
"$cxx" -m32 ./*.o -o attach32 -latomic

"$inspect" create --segment "$segment" --breakers 4
if ./attach32 "$segment" >said.log; then
  echo "it attached" >&2
  exit 1
fi
cat said.log
grep -q 'word size is 64 bits, expected 32 bits' said.log
