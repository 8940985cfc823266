// Compressed test data.
#pragma once

#include <string>
#include <string_view>

namespace tutti::testing {

// `text` as one gzip member.
std::string gzip_of(std::string_view text);

}  // namespace tutti::testing
