// SPDX-License-Identifier: BSD-3-Clause
// The service that all workers call: an HTTP server on loopback, in a process of its own, that breaks down on request.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "process.hpp"
#include "sockets.hpp"

namespace worker_pool {

enum class Outage : std::uint8_t {
  hang,    ///< stopped: the kernel still takes connections, nobody answers
  slow,    ///< answers, but long after any client has given up
  errors,  ///< answers 503 at once
  kill,    ///< gone: connections are refused
};

[[nodiscard]] std::string_view to_string(Outage outage) noexcept;
[[nodiscard]] std::string_view describe(Outage outage) noexcept;

class Downstream {
 public:
  /// Starts it, healthy, on a free port.
  Downstream();
  Downstream(const Downstream&) = delete;
  Downstream& operator=(const Downstream&) = delete;
  ~Downstream();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  void break_down(Outage outage);
  /// Ends an outage; it answers from now on.
  void recover(Outage outage);

 private:
  enum class Behaviour : std::uint8_t { healthy, slow, errors };

  void start();
  [[noreturn]] static void serve(const Socket& listener, const std::atomic<Behaviour>& behaviour);
  static void answer(int client, Behaviour behaviour);

  std::atomic<Behaviour>* behaviour_;  ///< in memory that it shares with its process
  Socket reserved_;                    ///< bound and never listening: keeps the port while the process is gone
  std::uint16_t port_ = 0;
  Process process_;
};

}  // namespace worker_pool
