#include "tutti/comm/gloo/pair_sockets.h"

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <sys/socket.h>

#include <charconv>
#include <filesystem>

#include "tutti/job/store/socket.h"

namespace tutti::comm {
namespace {

// "" unless the descriptor is a socket with such an end.
template <class Get>
std::string end_of(const Get& get, int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const bool has = get(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && (address.ss_family == AF_INET || address.ss_family == AF_INET6);
  return has ? to_text(address) : "";
}

std::string near_end(int fd) { return end_of(getsockname, fd); }
std::string far_end(int fd) { return end_of(getpeername, fd); }
std::string ends_of(int fd) { return near_end(fd) + " " + far_end(fd); }

std::string text_of(const std::vector<char>& address) { return to_text(gloo::transport::tcp::Address(address).getSockaddr()); }

}  // namespace

bool PairSocket::is_open() const { return fd >= 0 && ends_of(fd) == ends; }

std::vector<PairSocket> find_pair_sockets(gloo::transport::Context& context, const std::vector<std::vector<char>>& addresses) {
  std::vector<PairSocket> found(addresses.size());
  std::vector<std::string> listening_here(addresses.size()), listening_there(addresses.size());
  std::vector<int> matches(addresses.size(), 0);
  for (int p = 0; p < context.size; ++p) {
    if (p == context.rank) continue;
    listening_here[static_cast<size_t>(p)] = text_of(context.getPair(p)->address().bytes());
    listening_there[static_cast<size_t>(p)] = text_of(addresses[static_cast<size_t>(p)]);
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    const std::string far = far_end(fd);
    if (far.empty()) continue;  // no socket, or one that only listens
    const std::string near = near_end(fd);
    for (size_t p = 0; p < found.size(); ++p) {
      if (near != listening_here[p] && far != listening_there[p]) continue;
      found[p] = {.fd = fd, .ends = near + " " + far};
      ++matches[p];
    }
  }
  for (size_t p = 0; p < found.size(); ++p) {
    if (matches[p] > 1) found[p] = {};  // a gloo that lets all connections of a rank share an address
  }
  return found;
}

}  // namespace tutti::comm
