#include "tutti/comm/gloo/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

struct Interface {
  std::string name;
  std::string address;  // numeric
  bool is_loopback;
};

std::optional<std::string> numeric(const sockaddr* address) {
  if (address == nullptr || (address->sa_family != AF_INET && address->sa_family != AF_INET6)) return std::nullopt;
  const socklen_t length = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  char text[NI_MAXHOST];
  if (getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return std::nullopt;
  return text;
}

std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  TUTTI_CHECK_ENV(getifaddrs(&list) == 0, "cannot list the network interfaces: {}", detail::errno_text(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  // IPv4 first: addresses of IPv6 are often usable on one link only.
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      const bool is_up = (i->ifa_flags & IFF_UP) != 0 && (i->ifa_flags & IFF_RUNNING) != 0;
      if (!is_up || i->ifa_addr == nullptr || i->ifa_addr->sa_family != family) continue;
      if (const auto address = numeric(i->ifa_addr))
        found.push_back({i->ifa_name, *address, (i->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

// The addresses of this host's name. Many systems give it one of the loopback, which no other host can reach.
std::vector<std::string> own_addresses() {
  char name[256] = "";
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::vector<std::string> found;
  if (gethostname(name, sizeof name - 1) != 0 || getaddrinfo(name, nullptr, &hints, &list) != 0) return found;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    if (const auto address = numeric(a->ai_addr)) found.push_back(*address);
  }
  freeaddrinfo(list);
  return found;
}

}  // namespace

std::string choose_address(const std::string& wanted, bool all_are_here) {
  const std::vector<Interface> all = interfaces();
  if (!wanted.empty()) {
    std::vector<std::string> names;
    for (const Interface& i : all) {
      if (i.name == wanted) return i.address;
      if (names.empty() || names.back() != i.name) names.push_back(i.name);
    }
    throw UsageError(unknown_name_message("network interface of GLOO_SOCKET_IFNAME", wanted, names));
  }
  if (!all_are_here) {
    for (const std::string& own : own_addresses()) {
      for (const Interface& i : all) {
        if (!i.is_loopback && i.address == own) return own;
      }
    }
  }
  for (const bool loopback : {all_are_here, !all_are_here}) {
    for (const Interface& i : all) {
      if (i.is_loopback == loopback) return i.address;
    }
  }
  throw EnvironmentError("no network interface is up, not even the loopback; gloo needs one");
}

}  // namespace tutti::comm
