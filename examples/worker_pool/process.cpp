// SPDX-License-Identifier: BSD-3-Clause
#include "process.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>

namespace worker_pool {

Process::Process(const std::function<void()>& work) {
  std::fflush(stdout);  // else the child has what is in the buffer, too
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (pid_ > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    ::signal(signal, SIG_DFL);
  try {
    work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "in a child process: %s\n", error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

void Process::kill() noexcept {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

}  // namespace worker_pool
