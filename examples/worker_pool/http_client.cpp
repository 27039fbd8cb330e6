// SPDX-License-Identifier: BSD-3-Clause
#include "http_client.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include "sockets.hpp"

namespace worker_pool {
namespace {

using Clock = std::chrono::steady_clock;

void wait_for(const Socket& socket, short what, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  pollfd ready{.fd = socket.fd(), .events = what, .revents = 0};
  const int count = ::poll(&ready, 1, static_cast<int>(std::max<decltype(left)>(left, 0)));
  if (count < 0) fail("poll");
  if (count == 0) fail("no answer", ETIMEDOUT);
}

void connect(const Socket& socket, std::uint16_t port, Clock::time_point deadline) {
  const sockaddr_in address = loopback(port);
  if (::connect(socket.fd(), generic(address), sizeof address) == 0) return;
  if (errno != EINPROGRESS) fail("connect");
  wait_for(socket, POLLOUT, deadline);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) fail("connect", error);
}

}  // namespace

int http_get(std::uint16_t port, std::chrono::milliseconds timeout) {
  const Clock::time_point deadline = Clock::now() + timeout;
  const Socket socket = Socket::tcp(SOCK_NONBLOCK);
  connect(socket, port, deadline);

  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  // A fresh connection has room for it.
  if (::send(socket.fd(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL) != ssize_t{kRequest.size()}) fail("send");

  std::string answer;
  std::array<char, 1024> buffer{};
  for (;;) {
    wait_for(socket, POLLIN, deadline);
    const ssize_t got = ::recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (got < 0) fail("recv");
    if (got == 0) break;
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  constexpr std::string_view kStart = "HTTP/1.1 ";
  if (!answer.starts_with(kStart)) fail("not an answer of HTTP/1.1", EPROTO);
  return std::atoi(answer.c_str() + kStart.size());
}

}  // namespace worker_pool
