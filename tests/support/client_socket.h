// A connection by hand, for what no client does.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace tutti::testing {

class ClientSocket {
 public:
  explicit ClientSocket(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  ~ClientSocket() { close(); }
  ClientSocket(const ClientSocket&) = delete;
  ClientSocket& operator=(const ClientSocket&) = delete;

  // Whether the other side still takes bytes.
  bool offer(const std::string& text) const {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == std::ssize(text);
  }
  void send(const std::string& text) const { EXPECT_TRUE(offer(text)); }
  // Sends the text and then waits; false when the other side has closed.
  bool trickle(const std::string& text, std::chrono::milliseconds time) const {
    if (!offer(text)) return false;
    pollfd entry{.fd = socket_, .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&entry, 1, static_cast<int>(time.count())) == 0 || ::recv(socket_, &byte, 1, 0) > 0;
  }
  // Until `wanted` has come, or the other side has closed.
  std::string receive(const std::string& wanted) const {
    std::string all;
    char buffer[4096];
    while (all.find(wanted) == std::string::npos) {
      const ssize_t nbytes = ::recv(socket_, buffer, sizeof(buffer), 0);
      if (nbytes <= 0) break;
      all.append(buffer, static_cast<size_t>(nbytes));
    }
    return all;
  }
  std::string receive_all() const { return receive(std::string("\0no text has this\0", 18)); }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

 private:
  int socket_;
};

}  // namespace tutti::testing
