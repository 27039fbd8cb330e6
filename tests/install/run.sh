#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run.sh <source> <build> <step>: one step of the install tests. `prefix` installs the build tree; every other step builds
# a consumer in its own way and runs it. CTest passes CMAKE, CXX, GENERATOR, SHARED,
# LIBDIR, VERSION and CONFIG_TEXT (ON: shmcb::config is built).
set -eu

source_dir=$1
work=$2/install_test
step=$3
prefix=$work/prefix
dir=$work/$step

fail() {
  echo "install.$step: $*" >&2
  exit 1
}

# A consumer's program must answer with the version that CMake took from the headers.
expect_version() {
  answer=$("$1") || fail "$1 ended with $?"
  echo "$answer"
  case $answer in
    "shmcb $VERSION"*) ;;
    *) fail "$1 said '$answer', expected shmcb $VERSION" ;;
  esac
}

build_consumer() {
  "$CMAKE" -G "$GENERATOR" -S "$source_dir/tests/install/$step" -B "$dir" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS=-Werror "$@"
  "$CMAKE" --build "$dir"
  expect_version "$dir/consumer"
  expect_version "$dir/core_consumer"
}

rm -rf "$dir"
mkdir -p "$work"
case $step in
  prefix)
    "$CMAKE" --install "$2" --prefix "$prefix"
    for file in include/shmcb/version.hpp "$LIBDIR/cmake/shmcb/shmcbConfig.cmake" "$LIBDIR/pkgconfig/shmcb.pc"; do
      [ -f "$prefix/$file" ] || fail "$file was not installed"
    done
    if [ "$CONFIG_TEXT" != ON ] && [ -e "$prefix/include/shmcb/config_text.hpp" ]; then
      fail "config_text.hpp was installed without its library"
    fi
    if grep -rlE "Boost|tomlplusplus|$source_dir" "$prefix/$LIBDIR/cmake" "$prefix/$LIBDIR/pkgconfig"; then
      fail "the files above name Boost, toml++ or the source tree"
    fi
    ;;
  find_package)
    build_consumer -DCMAKE_PREFIX_PATH="$prefix" -DCONFIG_TEXT="$CONFIG_TEXT"
    if [ "$CONFIG_TEXT" = ON ]; then
      expect_version "$dir/config_consumer"
    fi
    ;;
  add_subdirectory)
    build_consumer -DSHMCB_SOURCE_DIR="$source_dir"
    ;;
  pkg_config)
    mkdir -p "$dir"
    PKG_CONFIG_PATH=$prefix/$LIBDIR/pkgconfig
    export PKG_CONFIG_PATH
    static=--static
    if [ "$SHARED" = ON ]; then
      static=
    fi
    flags=$(pkg-config $static --cflags --libs shmcb)
    echo "flags: $flags"
    # shellcheck disable=SC2086 # the flags are words
    "$CXX" -std=c++20 -O2 "$source_dir/tests/install/main.cpp" -o "$dir/consumer" $flags "-Wl,-rpath,$prefix/$LIBDIR"
    expect_version "$dir/consumer"
    if [ "$CONFIG_TEXT" = ON ]; then
      flags=$(pkg-config $static --cflags --libs shmcb-config)
      # shellcheck disable=SC2086
      "$CXX" -std=c++20 -O2 "$source_dir/tests/install/config_main.cpp" -o "$dir/config_consumer" $flags \
        "-Wl,-rpath,$prefix/$LIBDIR"
      expect_version "$dir/config_consumer"
    fi
    ;;
  *)
    fail "unknown step"
    ;;
esac
