// One event on a node, of which all launchers hear.
#pragma once

#include <string>

#include "tutti/job/launch/failure.h"

namespace tutti::comm {

struct NewsItem {
  enum class Kind { failure, signal, ended, notice };
  Kind kind = Kind::ended;
  int node = 0;              // index in the plan
  int number = 0;            // of the signal
  bool interrupted = false;  // ended: because of a signal
  LaunchFailure failure;
  std::string notice = "";  // what users are to know on all nodes
};

}  // namespace tutti::comm
