// The address of this host to which peers connect.
#pragma once

#include <string>

namespace tutti::comm {

struct InterfaceChoice {
  std::string name;      // "eth0" when it was asked for by name, else ""
  std::string address;   // numeric: "10.0.0.7"
};

// `wanted`: the value of GLOO_SOCKET_IFNAME, or "". UsageError lists the interfaces there are when it is none of them.
InterfaceChoice choose_interface(const std::string& wanted);

}  // namespace tutti::comm
