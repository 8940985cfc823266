// Refusals of messages by their receivers.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::comm {

// A message of this rank that its receiver has refused. The call it belonged to may have ended long ago: a transport
// takes small messages at once.
struct Refusal {
  int peer = -1;  // who refuses it
  uint32_t tag = 0;
  int64_t call = 0;  // number of the call that sent it (Message::call); 0: unknown
  std::string text;  // what both ends are told
};

}  // namespace tutti::comm
