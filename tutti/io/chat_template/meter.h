// Meter: what a template may use while it renders, and the place in the template that messages name.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>
#include <utility>

#include "tutti/io/chat_template/chat_template.h"

namespace tutti::jinja {

class Meter {
 public:
  Meter(std::string name, const ChatTemplateLimits& limits) : limits_(limits), name_(std::move(name)) {}

  // One node of the template, or work of the same size. UsageError when there have been too many.
  void step(int64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.steps) [[unlikely]]
      fail("this takes more than {} steps; the template may not end", limits_.steps);
  }
  // A text of `nbytes` is about to be made. UsageError when that is too much.
  void text(size_t nbytes) {
    limit_text(nbytes);
    step(1 + static_cast<int64_t>(nbytes / 8));
  }
  // The same for a text that is made in parts, which are charged one by one.
  void limit_text(size_t nbytes) const {
    if (nbytes > limits_.text_nbytes) [[unlikely]]
      fail("this makes a text of more than {} bytes", limits_.text_nbytes);
  }
  size_t most_text_nbytes() const { return limits_.text_nbytes; }
  size_t most_values() const { return limits_.values; }
  // A list or mapping of `count` values is about to be made.
  void values(size_t count) {
    if (count > limits_.values) [[unlikely]]
      fail("this makes a list of more than {} values", limits_.values);
    step(4 * static_cast<int64_t>(count));
  }

  int line = 1;

  // Throws UsageError "NAME:LINE: MESSAGE".
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    fail_with(fmt::format(message, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail_with(const std::string& message) const;

 private:
  ChatTemplateLimits limits_;
  std::string name_;
  int64_t steps_ = 0;
};

}  // namespace tutti::jinja
