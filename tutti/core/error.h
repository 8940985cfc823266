// Errors and checks.
//
// There are three kinds. UsageError: the caller can fix it. EnvironmentError: network, file, memory or peer failed; the
// caller may retry or rebuild. InternalError: a bug in Tutti; the message says what to report. The library never ends
// the host program. Every message says what is wrong, where, and how to fix it, with the actual values.
#pragma once

#include <fmt/core.h>

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tutti {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class UsageError : public Error {
 public:
  using Error::Error;
};

class EnvironmentError : public Error {
 public:
  using Error::Error;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

// An integer was divided by zero. The text contains "ZeroDivisionError".
class IntegerDivideByZero : public UsageError {
 public:
  explicit IntegerDivideByZero(std::string_view where)
      : UsageError(fmt::format("{}: ZeroDivisionError: integer division or modulo by zero", where)) {}
};

// A result of checked shape arithmetic is outside the range of int64.
class SymIntOverflow : public UsageError {
 public:
  using UsageError::UsageError;
};

// The candidate closest to `name` by edit distance, or "" when none is close. For "did you mean" hints.
std::string nearest_match(std::string_view name, std::span<const std::string> candidates);

// "unknown <what> 'x'; did you mean 'y'? Known: a, b, c"
std::string unknown_name_message(std::string_view what, std::string_view name, std::span<const std::string> known);

namespace detail {
[[noreturn]] void throw_usage(std::string message);
[[noreturn]] void throw_environment(std::string message);
[[noreturn]] void throw_internal(const char* file, int line, const char* condition, std::string message);
// errno as text, thread-safe.
std::string errno_text(int error);
}  // namespace detail

}  // namespace tutti

// Throws UsageError unless `condition` holds.
#define TUTTI_CHECK(condition, ...)                           \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::tutti::detail::throw_usage(fmt::format(__VA_ARGS__)); \
  } while (0)

// Throws UsageError unless a == b; the message ends with both values.
#define TUTTI_CHECK_EQ(a, b, ...)                                                                              \
  do {                                                                                                         \
    const auto& tutti_a_ = (a);                                                                                \
    const auto& tutti_b_ = (b);                                                                                \
    if (!(tutti_a_ == tutti_b_)) [[unlikely]]                                                                  \
      ::tutti::detail::throw_usage(fmt::format(__VA_ARGS__) + fmt::format(" ({} vs {})", tutti_a_, tutti_b_)); \
  } while (0)

// Throws EnvironmentError unless `condition` holds.
#define TUTTI_CHECK_ENV(condition, ...)                             \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::tutti::detail::throw_environment(fmt::format(__VA_ARGS__)); \
  } while (0)

// Throws InternalError unless `condition` holds. For conditions that no input can violate.
#define TUTTI_ASSERT(condition, ...)                                                                \
  do {                                                                                              \
    if (!(condition)) [[unlikely]]                                                                  \
      ::tutti::detail::throw_internal(__FILE__, __LINE__, #condition, fmt::format("" __VA_ARGS__)); \
  } while (0)
