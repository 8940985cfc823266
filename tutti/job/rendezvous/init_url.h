// Parsing of initialization URLs such as "tcp://host:port?rank=0&world_size=2".
#pragma once

#include <optional>
#include <string>

namespace tutti::comm {

struct InitUrl {
  std::string text;  // as given, for messages
  std::string scheme;
  std::string host;         // tcp
  std::optional<int> port;  // tcp
  std::string path;         // file; %XX is decoded
  std::optional<int> rank;
  std::optional<int> world_size;
};

// UsageError for an unknown scheme or parameter, a malformed number, or a missing part.
InitUrl parse_init_url(const std::string& text);

}  // namespace tutti::comm
