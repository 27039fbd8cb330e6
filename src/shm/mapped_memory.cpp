// SPDX-License-Identifier: BSD-3-Clause
#include "mapped_memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

namespace shmcb::shm {

namespace {

std::string text_of(int error) {
  std::array<char, 128> buffer{};
  return ::strerror_r(error, buffer.data(), buffer.size());
}

bool populate([[maybe_unused]] void* begin, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
  return ::madvise(begin, bytes, MADV_POPULATE_WRITE) == 0;  // Linux 5.14
#else
  return false;
#endif
}

/// "Rss:         1024 kB" to 1048576; 0 if it is another line.
std::uint64_t bytes_in(std::string_view line, std::string_view field) {
  if (!line.starts_with(field)) return 0;
  line.remove_prefix(field.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::uint64_t kilobytes = 0;
  std::from_chars(line.data(), line.data() + line.size(), kilobytes);
  return kilobytes * 1024;
}

/// "7f5ff4a00000-7f5ff4f01000 rw-s ...": where a mapping begins; other lines have no such number before a '-'.
bool begins_at(std::string_view line, std::uintptr_t& begin) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), begin, 16);
  return error == std::errc{} && end != line.data() + line.size() && *end == '-';
}

}  // namespace

void bring_in(void* begin, std::size_t bytes) noexcept {
  if (populate(begin, bytes)) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto* at = static_cast<const volatile unsigned char*>(begin);
  for (std::size_t offset = 0; offset < bytes; offset += page)
    (void)at[offset];
}

void ask_for_huge_pages(void* begin, std::size_t bytes) noexcept {
  (void)::madvise(begin, bytes, MADV_HUGEPAGE);  // EINVAL: a kernel without them
}

Error lock(void* begin, std::size_t bytes) {
  // Not mlock(): sanitizers put one in its place that does nothing.
  if (::syscall(SYS_mlock, begin, bytes) == 0) return {};
  const int error = errno;
  std::string message = "locking its " + std::to_string(bytes) + " bytes in memory (mlock): " + text_of(error);
  if (error != ENOMEM && error != EPERM) return {Errc::system, std::move(message)};
  rlimit limit{};
  (void)::getrlimit(RLIMIT_MEMLOCK, &limit);
  message += "; the process's limit of locked memory (RLIMIT_MEMLOCK) is " + std::to_string(limit.rlim_cur) +
             " bytes, for all that it locks: raise it (ulimit -l, LimitMEMLOCK= of systemd) or give CAP_IPC_LOCK";
  return {Errc::memory_lock_limit, std::move(message)};
}

void allocate_huge_pages(int fd, std::size_t bytes) noexcept {
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return;
  void* begin = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (begin == MAP_FAILED) return;
  ask_for_huge_pages(begin, bytes);
  (void)populate(begin, bytes);
  ::munmap(begin, bytes);
}

Result<SegmentMemory> memory_of(const void* begin, std::size_t bytes) {
  std::ifstream file("/proc/self/smaps");
  const auto from = reinterpret_cast<std::uintptr_t>(begin);
  SegmentMemory memory{.bytes = bytes};
  bool found = false;
  bool inside = false;
  std::uint64_t last_present = 0;
  for (std::string line; std::getline(file, line);) {
    std::uintptr_t at = 0;
    if (begins_at(line, at)) {
      inside = at - from < bytes;
      found = found || inside;
      last_present = 0;
    } else if (inside) {
      const std::uint64_t present = bytes_in(line, "Rss:");
      memory.present += present;
      last_present += present;
      memory.huge += bytes_in(line, "ShmemPmdMapped:");
      // The line "Locked:" gives each process its share of a shared page. The flags come last.
      if (line.starts_with("VmFlags:") && line.find(" lo") != std::string::npos) memory.locked += last_present;
    }
  }
  if (!found) return Error{Errc::system, "/proc/self/smaps does not tell of its mapping"};
  return memory;
}

}  // namespace shmcb::shm
