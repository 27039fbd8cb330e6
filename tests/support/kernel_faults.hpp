// SPDX-License-Identifier: BSD-3-Clause
// What the kernel can do to a process, for children of a test: file systems of their own, system calls that fail, death
// at a chosen system call. Where the kernel of the machine does not allow it, the child says so by kRefusedByKernel.
#pragma once

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <gtest/gtest.h>

#include "support/processes.hpp"

namespace shmcb::test {

inline constexpr int kRefusedByKernel = 77;

/// Ends the test as skipped where its child said that it could not have its way.
#define SHMCB_SKIP_IF_REFUSED(ended, what)                                            \
  do {                                                                                \
    if ((ended).exit_code == ::shmcb::test::kRefusedByKernel) GTEST_SKIP() << (what); \
  } while (false)

/// An empty directory, removed with what is in it. It lies outside /dev/shm.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    if (::mkdtemp(path_.data()) == nullptr) throw std::system_error(errno, std::generic_category(), "mkdtemp");
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    if (maker_ == ::getpid()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_ = "/tmp/shmcb-test-XXXXXX";
  pid_t maker_ = ::getpid();
};

/// The names in a directory.
[[nodiscard]] inline std::set<std::string> listing(const std::string& directory) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    names.insert(entry.path().filename());
  return names;
}

/// In a child: mounts a file system that only this process and its children see. False: refused.
[[nodiscard]] inline bool mount_privately(const std::string& directory, const char* type, const char* options,
                                          unsigned long flags = 0) {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount(type, directory.c_str(), type, flags, options) == 0;
}

/// Which calls of a system call: those whose argument has all bits of `mask` set; with mask 0 all.
struct SystemCall {
  long number = 0;
  unsigned argument = 0;
  std::uint32_t mask = 0;
};

/// In a child: from now on such calls fail with `error`, in this process and its children. False: refused.
[[nodiscard]] inline bool fail_system_call(SystemCall call, int error) {
  const std::array<sock_filter, 8> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(call.number), 0, 4),
      // The low half of a 64-bit argument (little-endian).
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
               static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8UL * call.argument)),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, call.mask),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.mask, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{.len = program.size(), .filter = const_cast<sock_filter*>(program.data())};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/// Every file system here has O_TMPFILE; this is one that has not.
[[nodiscard]] inline bool refuse_unnamed_files() {
  return fail_system_call({.number = SYS_openat, .argument = 2, .mask = O_TMPFILE}, EOPNOTSUPP);
}

/// Runs `work` in a child, stops it at its `stop`-th stop (it stops before and after each system call), calls
/// `meanwhile` with the child, and lets it go on. Answers how it ended; when it made fewer system calls `meanwhile` was
/// not called.
template <class Work, class Meanwhile>
[[nodiscard]] Ended run_stopped_at_system_call(Work work, int stop, Meanwhile meanwhile) {
  Child child = fork_child([&work]() -> int {
    ::alarm(60);  // the tracer cannot wait with a limit
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) return kRefusedByKernel;
    ::raise(SIGSTOP);
    return exit_code_of(work);
  });
  int status = 0;
  for (int stops = -1; ::waitpid(child.pid(), &status, WUNTRACED) == child.pid() && WIFSTOPPED(status);) {
    const int signal = WSTOPSIG(status);
    const bool of_ours = signal == SIGTRAP || signal == SIGSTOP;
    if (of_ours && ++stops == stop) {
      meanwhile(child);
      ::ptrace(PTRACE_DETACH, child.pid(), nullptr, nullptr);
    } else {
      ::ptrace(PTRACE_SYSCALL, child.pid(), nullptr, of_ours ? 0L : static_cast<long>(signal));
    }
  }
  child.reaped();
  return WIFEXITED(status) ? exited(WEXITSTATUS(status)) : killed_by(WTERMSIG(status));
}

/// The same, but it dies there.
template <class Work>
[[nodiscard]] Ended run_killed_at_system_call(Work work, int stop) {
  return run_stopped_at_system_call(std::move(work), stop, [](const Child& child) { child.kill(); });
}

}  // namespace shmcb::test
