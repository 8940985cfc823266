// The traces that a job may leave behind on this host.
#pragma once

#include <string>
#include <vector>

namespace tutti::comm {

// Everything of this process and of this host that the ranks of a job could forget; equal before and after.
struct Traces {
  int descriptors = 0;               // of this process
  int segments = 0;                  // mapped in this process
  std::vector<std::string> files;    // in /dev/shm
  std::vector<std::string> sockets;  // Tutti's, in the abstract namespace
  bool children = false;             // this process has any
};
Traces look_for_traces();
// Traces that were not there before and stay for two seconds (other jobs of this host come and go); "" when nothing
// is.
std::string left_behind(const Traces& before);

}  // namespace tutti::comm
