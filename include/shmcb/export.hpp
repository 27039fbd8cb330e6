// SPDX-License-Identifier: BSD-3-Clause
// SHMCB_EXPORT marks what the compiled library hands out; everything else stays hidden in a shared build.
// The build defines SHMCB_STATIC for a static library, so that it does not become part of the interface of a shared
// object that links it.
#pragma once

#if defined(SHMCB_STATIC) || !defined(__GNUC__)
#define SHMCB_EXPORT
#else
#define SHMCB_EXPORT __attribute__((visibility("default")))
#endif
