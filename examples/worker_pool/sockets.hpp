// SPDX-License-Identifier: BSD-3-Clause
// The few socket calls that client and service share.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

namespace worker_pool {

[[noreturn]] inline void fail(const char* what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) noexcept : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] static Socket tcp(int flags = 0) {
    Socket made{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0)};
    if (made.fd() < 0) fail("socket");
    return made;
  }
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

[[nodiscard]] inline sockaddr_in loopback(std::uint16_t port) noexcept {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// The form of an address that the socket calls take.
[[nodiscard]] inline const sockaddr* generic(const sockaddr_in& address) noexcept {
  return reinterpret_cast<const sockaddr*>(&address);
}

}  // namespace worker_pool
