// How much text was read.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

struct TextCounts {
  int64_t files = 0;
  int64_t documents = 0;
  int64_t nbytes = 0;   // of the text of these documents
  int64_t skipped = 0;  // documents and files without text
  bool operator==(const TextCounts&) const = default;
};

// "read 3 files, 61 documents, 10240 bytes, skipped 2 without text"
std::string describe(const TextCounts& counts);

}  // namespace tutti
