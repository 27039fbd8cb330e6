// SPDX-License-Identifier: BSD-3-Clause
#include "downstream.hpp"

#include <sys/mman.h>

#include <array>
#include <new>
#include <thread>

namespace worker_pool {
namespace {

constexpr std::chrono::seconds kSlow{2};  // more than any client waits

/// On `port`; 0 picks a free one.
[[nodiscard]] Socket bound_to(std::uint16_t port) {
  Socket socket = Socket::tcp();
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = loopback(port);
  if (::bind(socket.fd(), generic(address), sizeof address) != 0) fail("bind");
  return socket;
}

[[nodiscard]] std::uint16_t port_of(const Socket& socket) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) fail("getsockname");
  return ntohs(address.sin_port);
}

}  // namespace

std::string_view to_string(Outage outage) noexcept {
  switch (outage) {
    case Outage::hang: return "hang";
    case Outage::slow: return "slow";
    case Outage::errors: return "errors";
    case Outage::kill: return "kill";
  }
  return "invalid";
}

std::string_view describe(Outage outage) noexcept {
  switch (outage) {
    case Outage::hang: return "hangs (SIGSTOP): takes connections, never answers";
    case Outage::slow: return "is slow: answers when its clients have given up";
    case Outage::errors: return "answers 503 at once";
    case Outage::kill: return "is killed (SIGKILL): connections are refused";
  }
  return "invalid";
}

Downstream::Downstream() : reserved_(bound_to(0)), port_(port_of(reserved_)) {
  void* const memory = ::mmap(nullptr, sizeof *behaviour_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  behaviour_ = ::new (memory) std::atomic<Behaviour>{Behaviour::healthy};
  start();
}

Downstream::~Downstream() {
  ::munmap(behaviour_, sizeof *behaviour_);
}

void Downstream::start() {
  // Listens before its process is there, so that nobody is refused any more when this returns.
  const Socket listener = bound_to(port_);
  if (::listen(listener.fd(), SOMAXCONN) != 0) fail("listen");
  process_ = Process{[&] { serve(listener, *behaviour_); }};
}

void Downstream::break_down(Outage outage) {
  switch (outage) {
    case Outage::hang: process_.send(SIGSTOP); return;
    case Outage::slow: behaviour_->store(Behaviour::slow); return;
    case Outage::errors: behaviour_->store(Behaviour::errors); return;
    case Outage::kill: process_.kill(); return;
  }
}

void Downstream::recover(Outage outage) {
  switch (outage) {
    case Outage::hang: process_.send(SIGCONT); return;
    case Outage::slow:
    case Outage::errors: behaviour_->store(Behaviour::healthy); return;
    case Outage::kill: start(); return;
  }
}

void Downstream::serve(const Socket& listener, const std::atomic<Behaviour>& behaviour) {
  for (;;) {
    const int client = ::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    std::thread{[client, &behaviour] { answer(client, behaviour.load()); }}.detach();
  }
}

void Downstream::answer(int client, Behaviour behaviour) {
  const Socket connection{client};
  std::array<char, 1024> request{};
  if (::recv(client, request.data(), request.size(), 0) <= 0) return;  // ours arrive in one piece
  if (behaviour == Behaviour::slow) std::this_thread::sleep_for(kSlow);
  const std::string_view text =
      behaviour == Behaviour::errors
          ? "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
          : "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
  (void)::send(client, text.data(), text.size(), MSG_NOSIGNAL);  // a client that has given up does not matter
}

}  // namespace worker_pool
