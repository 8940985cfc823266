#include "tutti/job/store/store_rules.h"

#include <algorithm>
#include <charconv>

#include "tutti/job/deadline.h"

namespace tutti::comm {
namespace {

double seconds(std::chrono::milliseconds duration) { return static_cast<double>(duration.count()) / 1000; }

}  // namespace

Store::Store(std::chrono::milliseconds timeout) : timeout_ms_(0) { set_timeout(timeout); }

std::chrono::milliseconds Store::timeout() const {
  return std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed));
}

void Store::set_timeout(std::chrono::milliseconds timeout) {
  check_store_timeout("set_timeout", timeout);
  timeout_ms_.store(timeout.count(), std::memory_order_relaxed);
}

void check_store_key(std::string_view key) {
  TUTTI_CHECK(!key.empty(), "store: a key must not be empty");
  TUTTI_CHECK(key.size() <= kMaxStoreKeyBytes, "store: key '{}' has {} bytes, the limit is {}", printable_key(key),
              key.size(), kMaxStoreKeyBytes);
}

void check_store_key_count(size_t count) {
  TUTTI_CHECK(count <= kMaxStoreKeys, "store: one call names {} keys, the limit is {}; make several calls", count,
              kMaxStoreKeys);
}

void check_store_keys(const Store::Keys& keys) {
  check_store_key_count(keys.size());
  for (const std::string& key : keys) check_store_key(key);
}

void check_store_value(std::string_view key, size_t nbytes) {
  TUTTI_CHECK(nbytes <= kMaxStoreValueBytes,
              "store: the value of '{}' has {} bytes, the limit is {}; store it in parts under several keys",
              printable_key(key), nbytes, kMaxStoreValueBytes);
}

void check_store_world_size(std::string_view key, int64_t world_size) {
  TUTTI_CHECK(world_size >= 1, "store: barrier '{}' for a world size of {}; it must be 1 or more", printable_key(key),
              world_size);
}

void check_store_timeout(std::string_view call, std::chrono::milliseconds timeout) {
  TUTTI_CHECK(timeout.count() >= 0, "store: {} with a timeout of {} ms; it must be 0 or more", call, timeout.count());
}

int64_t store_add(std::string_view key, std::string_view stored, int64_t amount) {
  int64_t value = 0;
  if (!stored.empty()) {
    const auto [end, error] = std::from_chars(stored.data(), stored.data() + stored.size(), value);
    TUTTI_CHECK(error == std::errc() && end == stored.data() + stored.size(),
                "store: add to '{}', whose value '{}' is not a decimal int64", printable_key(key),
                printable_key(stored));
  }
  int64_t sum = 0;
  TUTTI_CHECK(!__builtin_add_overflow(value, amount, &sum), "store: add to '{}': {} + {} leaves the range of int64",
              printable_key(key), value, amount);
  return sum;
}

StoreDeadline::StoreDeadline(std::chrono::milliseconds timeout) : moment_(deadline_after(timeout)) {}

int StoreDeadline::poll_milliseconds() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(moment_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
}

StoreDeadline StoreDeadline::later(std::chrono::milliseconds extra) const { return StoreDeadline(moment_ + extra); }

std::string printable_key(std::string_view key) {
  constexpr size_t kShown = 100;
  std::string text;
  for (const char c : key.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return key.size() > kShown ? text + "..." : text;
}

void throw_keys_timeout(std::string_view call, const std::string& address, const Store::Keys& missing, size_t asked,
                        std::chrono::milliseconds waited) {
  constexpr size_t kNamed = 16;
  std::string names;
  for (size_t i = 0; i < std::min(missing.size(), kNamed); ++i) {
    names += fmt::format("{}'{}'", i ? ", " : "", printable_key(missing[i]));
  }
  if (missing.size() > kNamed) names += fmt::format(" and {} more", missing.size() - kNamed);
  throw StoreTimeout(fmt::format("store at {}: {} waited {:.3f} s, and {} of {} keys are still missing: {}", address,
                                 call, seconds(waited), missing.size(), asked, names));
}

void throw_queue_timeout(const std::string& address, std::string_view key, std::chrono::milliseconds waited) {
  throw StoreTimeout(fmt::format("store at {}: queue_pop waited {:.3f} s, and queue '{}' is still empty", address,
                                 seconds(waited), printable_key(key)));
}

void throw_barrier_timeout(const std::string& address, std::string_view key, int64_t arrived, int64_t world_size,
                           std::chrono::milliseconds waited) {
  throw StoreTimeout(fmt::format("store at {}: barrier '{}' waited {:.3f} s, and {} of {} callers have come", address,
                                 printable_key(key), seconds(waited), arrived, world_size));
}

}  // namespace tutti::comm
