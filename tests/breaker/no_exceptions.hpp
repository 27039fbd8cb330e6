// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace shmcb::test {

/// Uses the permit API in a file that is compiled with -fno-exceptions -fno-rtti. 0, or the number of the step that
/// failed.
int use_permits_without_exceptions() noexcept;

}  // namespace shmcb::test
