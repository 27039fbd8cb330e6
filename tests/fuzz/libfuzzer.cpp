// SPDX-License-Identifier: BSD-3-Clause
// One target as a libFuzzer program.
#include <cstddef>
#include <cstdint>

#include "fuzz/targets.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer calls it by this name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  shmcb::fuzz::SHMCB_FUZZ_TARGET(std::as_bytes(std::span{data, size}));
  return 0;
}
