// SPDX-License-Identifier: BSD-3-Clause
// A forked process that does not outlive this object, nor its parent.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <utility>

namespace worker_pool {

class Process {
 public:
  Process() = default;
  /// Runs `work` in a child. What it throws is printed there.
  explicit Process(const std::function<void()>& work);
  Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Process& operator=(Process&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() { kill(); }

  void send(int signal) const noexcept { ::kill(pid_, signal); }
  /// By SIGKILL, also where it is stopped; returns when it is gone.
  void kill() noexcept;

 private:
  pid_t pid_ = 0;
};

}  // namespace worker_pool
