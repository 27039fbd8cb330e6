// SPDX-License-Identifier: BSD-3-Clause
#include "breaker/no_exceptions.hpp"

#include <gtest/gtest.h>

TEST(NoExceptions, ThePermitApiWorksWithoutThemAndWithoutRtti) {
  EXPECT_EQ(shmcb::test::use_permits_without_exceptions(), 0);
}
