// strftime in the C locale, whatever the locale of the process is.
#pragma once

#include <ctime>
#include <string>
#include <string_view>

namespace tutti::jinja {

struct DateText {
  std::string text;
  std::string fault;  // which directive is not supported; empty when all are
};

// A directive has two characters or more and gives at most this many times as many.
constexpr size_t kMostDateGrowth = 16;

DateText date_text(std::string_view format, const std::tm& time);

}  // namespace tutti::jinja
