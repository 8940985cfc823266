#include "tutti/io/chat_template/date_text.h"

#include <fmt/core.h>

#include <algorithm>

namespace tutti::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

// `number` with at least `digits` digits, or without leading zeros after %-.
std::string padded(int number, int digits, bool is_plain) {
  return is_plain ? fmt::format("{}", number) : fmt::format("{:0{}}", number, digits);
}

std::string directive(char letter, const std::tm& time, bool is_plain) {
  const std::string_view day = kDays[static_cast<size_t>(std::clamp(time.tm_wday, 0, 6))];
  const std::string_view month = kMonths[static_cast<size_t>(std::clamp(time.tm_mon, 0, 11))];
  switch (letter) {
    case 'a':
      return std::string(day.substr(0, 3));
    case 'A':
      return std::string(day);
    case 'b':
      return std::string(month.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'd':
      return padded(time.tm_mday, 2, is_plain);
    case 'm':
      return padded(time.tm_mon + 1, 2, is_plain);
    case 'y':
      return padded(time.tm_year % 100, 2, is_plain);
    case 'Y':
      return fmt::format("{}", time.tm_year + 1900);
    case 'H':
      return padded(time.tm_hour, 2, is_plain);
    case 'I':
      return padded((time.tm_hour + 11) % 12 + 1, 2, is_plain);
    case 'M':
      return padded(time.tm_min, 2, is_plain);
    case 'S':
      return padded(time.tm_sec, 2, is_plain);
    case 'j':
      return padded(time.tm_yday + 1, 3, is_plain);
    case 'p':
      return time.tm_hour < 12 ? "AM" : "PM";
    case 'w':
      return fmt::format("{}", time.tm_wday);
    case 'e':
      return fmt::format("{:2}", time.tm_mday);
    case 'F':
      return fmt::format("{}-{:02}-{:02}", time.tm_year + 1900, time.tm_mon + 1, time.tm_mday);
    case 'T':
      return fmt::format("{:02}:{:02}:{:02}", time.tm_hour, time.tm_min, time.tm_sec);
    case '%':
      return "%";
    default:
      return {};
  }
}

}  // namespace

DateText date_text(std::string_view format, const std::tm& time) {
  DateText made;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      made.text += format[i];
      continue;
    }
    const bool is_plain = i + 1 < format.size() && format[i + 1] == '-';
    if (is_plain) ++i;
    const std::string text = ++i < format.size() ? directive(format[i], time, is_plain) : "";
    if (text.empty())
      return {
          .text = {},
          .fault = fmt::format("the directive '%{}' is not supported", format.substr(std::min(i, format.size()), 1))};
    made.text += text;
  }
  return made;
}

}  // namespace tutti::jinja
