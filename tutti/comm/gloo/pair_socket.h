// The socket of a connection that gloo uses.
#pragma once

#include <string>

#include "tutti/comm/gloo/tcp_endpoint.h"

namespace tutti::comm {

struct PairSocket {
  int fd = -1;  // gloo's own: none of ours to close
  std::string ends = "";

  // gloo may have closed it meanwhile, and another socket got its number.
  bool is_open() const { return fd >= 0 && ends_of(fd) == ends; }
};

}  // namespace tutti::comm
