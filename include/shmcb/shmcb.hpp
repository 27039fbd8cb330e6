// SPDX-License-Identifier: BSD-3-Clause
// Everything, for code that uses exceptions. Code without them includes shm_storage.hpp (or memory_storage.hpp) and
// permit.hpp.
#pragma once

#ifndef __cpp_exceptions
#error "shmcb/shmcb.hpp needs exceptions; without them include shmcb/shm_storage.hpp and shmcb/permit.hpp"
#endif

#include "shmcb/breaker_group.hpp"
#include "shmcb/circuit_breaker.hpp"
#include "shmcb/classify.hpp"
#include "shmcb/config.hpp"
#include "shmcb/failure.hpp"
#include "shmcb/fallback_storage.hpp"
#include "shmcb/memory_storage.hpp"
#include "shmcb/permit.hpp"
#include "shmcb/segment.hpp"
#include "shmcb/segment_event.hpp"
#include "shmcb/segment_observer.hpp"
#include "shmcb/segment_reader.hpp"
#include "shmcb/shm_storage.hpp"
#include "shmcb/storage.hpp"
#include "shmcb/time.hpp"
#include "shmcb/tsc_clock.hpp"
#include "shmcb/types.hpp"
#include "shmcb/version.hpp"
