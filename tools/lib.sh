# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# What tools/test, tools/demo and .ci/run share: the Debian packages, and one preset configured, built and tested.
# To be sourced, by bash with `set -euo pipefail`, in the top folder of the repository.

jobs=$(nproc)

# shellcheck disable=SC2034 # used by those who source this
base_packages=(g++ cmake ninja-build git pkgconf libboost-dev libgtest-dev libgmock-dev libbenchmark-dev libcli11-dev
  nlohmann-json3-dev libfmt-dev libtomlplusplus-dev libboost-context-dev relacy-dev)
# shellcheck disable=SC2034 # what tests inject faults with; without them those are skipped
test_packages=(strace faketime util-linux)
if [ "$(uname -m)" = x86_64 ]; then
  test_packages+=(g++-12-multilib) # not g++-multilib: that does not go together with cross compilers
fi
# shellcheck disable=SC2034
clang_packages=(clang libclang-rt-14-dev)
# shellcheck disable=SC2034
lint_packages=(clang-format-16 clang-tidy)
# shellcheck disable=SC2034 # of tools/bench --instructions
count_packages=(valgrind)

# Added up by run_suite over all suites of one run.
total_passed=0
total_failed=0
total_skipped=0

heading() {
  printf '\n== %s\n' "$*"
}

# need_packages <package>...: installs those that are missing; without the right to, says what to run and exits.
# SHMCB_NO_INSTALL=1 leaves the system alone, for those whose compiler or libraries come from somewhere else.
need_packages() {
  local package status missing=()
  if [ -n "${SHMCB_NO_INSTALL:-}" ]; then
    return
  fi
  if ! command -v dpkg-query >/dev/null; then
    echo "Not a Debian system: going on with what is here. On Debian 12 this needs: $*" >&2
    return
  fi
  for package in "$@"; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || true
    if [ "$status" != installed ]; then
      missing+=("$package")
    fi
  done
  if [ ${#missing[@]} -eq 0 ]; then
    return
  fi

  local install=(apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}") become=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
      become=(sudo -n)
    elif command -v sudo >/dev/null && [ -t 0 ] && [ -t 2 ]; then
      become=(sudo)
    else
      echo "Missing packages, and no right to install them. As root:" >&2
      echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
      exit 1
    fi
  fi
  heading "Installing ${missing[*]}"
  # Stale lists may still do; if not, the install says so.
  "${become[@]}" apt-get -o DPkg::Lock::Timeout=300 update ||
    echo "apt-get update failed; trying with the lists that are here" >&2
  if ! "${become[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"; then
    echo "Could not install: ${missing[*]}" >&2
    exit 1
  fi
}

# build_preset <preset> [<argument of cmake --build>...]
build_preset() {
  local preset=$1
  shift
  heading "Building $preset (build/$preset)"
  mkdir -p "build/$preset"
  if ! cmake --preset "$preset" >"build/$preset/configure.log" 2>&1; then
    cat "build/$preset/configure.log" >&2
    return 1
  fi
  NINJA_STATUS='[%f/%t, %es] ' cmake --build --preset "$preset" -j "$jobs" "$@"
}

junit_count() {
  sed -n "/<testsuite /,/>/ s/.*[[:space:]]$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -n 1
}

# run_suite <preset> [<argument of ctest>...]: runs the tests of a built preset, says how many passed, and adds them to the
# totals. Failed tests do not end the run: the summary decides.
run_suite() {
  local preset=$1 report wrapper=() code=0 tests failed skipped passed
  shift
  heading "Testing $preset"
  report=$PWD/build/$preset/junit.xml
  rm -f "$report"
  # ThreadSanitizer of g++ 12 gives up when the kernel spreads mappings wider than its shadow memory expects.
  if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then
    wrapper=(setarch -R)
  fi
  "${wrapper[@]}" ctest --preset "$preset" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$report" "$@" ||
    code=$?
  if [ -f "$report" ]; then
    tests=$(junit_count "$report" tests)
    failed=$(junit_count "$report" failures)
    skipped=$(($(junit_count "$report" skipped) + $(junit_count "$report" disabled)))
  else
    tests=0 failed=0 skipped=0
  fi
  passed=$((tests - failed - skipped))
  # ctest's exit code has the last word: a run that it did not like has failed, whatever was counted.
  if [ "$code" -ne 0 ] && [ "$failed" -eq 0 ]; then
    failed=1
  fi
  total_passed=$((total_passed + passed))
  total_failed=$((total_failed + failed))
  total_skipped=$((total_skipped + skipped))
}

# shellcheck disable=SC2120 # the label is optional
# summary [<label>]: the closing line, and the verdict as the status: none failed and some ran.
summary() {
  local line="${1:+$1: }$total_passed passed, $total_failed failed"
  if [ "$total_skipped" -gt 0 ]; then
    line+=", $total_skipped skipped"
  fi
  printf '\n%s\n' "$line"
  [ "$total_failed" -eq 0 ] && [ "$total_passed" -gt 0 ]
}
