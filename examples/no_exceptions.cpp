// SPDX-License-Identifier: BSD-3-Clause
// Permits and error codes: compiles with -fno-exceptions -fno-rtti.
#include <cstdio>
#include <utility>

#include <shmcb/classify.hpp>
#include <shmcb/memory_storage.hpp>
#include <shmcb/permit.hpp>

namespace {

using Storage = shmcb::MemoryStorage<>;

/// Stands for read(2): a count, or -1.
int read_sensor(int attempt) {
  return attempt < 2 ? -1 : 16;
}

void on_transition(void*, const shmcb::CircuitTransition& transition) noexcept {
  std::printf("  now %s\n", to_string(transition.to).data());  // a literal: it ends with a NUL
}

void use(shmcb::BasicBreaker<Storage>& breaker, int attempt) {
  auto acquired = breaker.try_acquire();
  if (acquired.rejected()) {
    std::printf("turned away for %lld ms\n", static_cast<long long>(acquired.rejection().retry_after.count()));
    return;
  }
  if (acquired.error() != shmcb::Errc::ok) {
    std::printf("the storage failed: %s\n", to_string(acquired.error()).data());
    return;
  }
  const int bytes = read_sensor(attempt);
  acquired.permit().settle(shmcb::classify::negative_is_failure(bytes));
  std::printf("read %d\n", bytes);
}

}  // namespace

int main() {
  auto opened = Storage::open({.name = "sensor", .failure_threshold = {.failures = 2, .window = 4}});
  if (!opened) {
    std::fprintf(stderr, "%s\n", opened.error().message.c_str());
    return 1;
  }
  shmcb::BasicBreaker<Storage> breaker{*std::move(opened), {nullptr, on_transition}};
  for (int attempt = 0; attempt < 3; ++attempt)
    use(breaker, attempt);
  breaker.force_closed();
  use(breaker, 3);
}
