// SPDX-License-Identifier: BSD-3-Clause
// The version of these headers. CMakeLists.txt reads the three numbers from here: this is the only place that has them.
#pragma once

#define SHMCB_VERSION_MAJOR 0
#define SHMCB_VERSION_MINOR 1
#define SHMCB_VERSION_PATCH 0

// Two steps, so that the numbers are put in before they become text.
#define SHMCB_VERSION_QUOTE(major, minor, patch) #major "." #minor "." #patch
#define SHMCB_VERSION_TEXT(major, minor, patch) SHMCB_VERSION_QUOTE(major, minor, patch)

namespace shmcb {

inline constexpr int kVersionMajor = SHMCB_VERSION_MAJOR;
inline constexpr int kVersionMinor = SHMCB_VERSION_MINOR;
inline constexpr int kVersionPatch = SHMCB_VERSION_PATCH;
inline constexpr const char* kVersion =
    SHMCB_VERSION_TEXT(SHMCB_VERSION_MAJOR, SHMCB_VERSION_MINOR, SHMCB_VERSION_PATCH);

}  // namespace shmcb
