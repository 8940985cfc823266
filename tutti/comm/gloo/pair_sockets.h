// The sockets of gloo's connections, which gloo keeps to itself: found among the descriptors of this process by their addresses.
#pragma once

#include <string>
#include <vector>

namespace gloo::transport {
class Context;
}

namespace tutti::comm {

struct PairSocket {
  int fd = -1;  // -1: not found
  std::string ends = "";

  // gloo may have closed it meanwhile, and another socket got its number.
  bool is_open() const;
};

// The sockets of `context`, by rank. addresses[p] is where rank p listens for this rank, as gloo's Address::bytes() gives it.
std::vector<PairSocket> find_pair_sockets(gloo::transport::Context& context, const std::vector<std::vector<char>>& addresses);

}  // namespace tutti::comm
