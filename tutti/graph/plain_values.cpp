#include "tutti/graph/plain_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "tutti/core/error.h"

namespace tutti::graph {
namespace {

// Texts are shown up to here.
constexpr size_t kShown = 40;

// One leaf or the head of a list, as Flattener wrote it.
struct Item {
  std::string text;
  bool is_value;  // a number, a flag, an enum or a text
};

class Items {
 public:
  explicit Items(std::string_view plain) : rest_(plain) {}

  std::optional<Item> next() {
    if (rest_.empty()) return std::nullopt;
    switch (const char kind = take(1)[0]) {
      case 't':
        return Item{"a tensor", false};
      case 'u':
        return Item{"an undefined tensor", false};
      case 'n':
        return Item{"a size", false};
      case 'k':
        return Item{"a random key", false};
      case 'o':
        return Item{"an optional that is set", false};
      case '-':
        return Item{"an optional that is not set", false};
      case 'v':
        return Item{fmt::format("a list of {}", count()), false};
      case 'm':
        return Item{fmt::format("a map of {}", count()), false};
      case 's':
        return Item{quoted(take(count())), true};
      default:
        return Item{number(kind, take(static_cast<size_t>(take(1)[0]))), true};
    }
  }

 private:
  std::string_view take(size_t n) {
    TUTTI_ASSERT(n <= rest_.size(), "plain arguments of {} bytes where {} are wanted", rest_.size(), n);
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return taken;
  }
  size_t count() {
    size_t n = 0;
    std::memcpy(&n, take(sizeof n).data(), sizeof n);
    return n;
  }
  static std::string quoted(std::string_view text) {
    return fmt::format("'{}'{}", text.substr(0, kShown),
                       text.size() > kShown ? fmt::format(" and {} more", text.size() - kShown) : "");
  }
  template <class T>
  static T as(std::string_view bytes) {
    T value{};
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  static std::string number(char kind, std::string_view bytes) {
    if (kind == 'b') return bytes[0] != 0 ? "true" : "false";
    if (kind == 'f') {
      if (bytes.size() == sizeof(float)) return fmt::format("{}", as<float>(bytes));
      return bytes.size() == sizeof(double) ? fmt::format("{}", as<double>(bytes))
                                            : fmt::format("{}", static_cast<double>(as<long double>(bytes)));
    }
    int64_t value = 0;
    std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
    const int unused_bits = 64 - 8 * static_cast<int>(bytes.size());
    if (kind == 'i' && unused_bits > 0)
      value = static_cast<int64_t>(static_cast<uint64_t>(value) << unused_bits) >> unused_bits;
    return kind == 'j' ? fmt::format("{}", static_cast<uint64_t>(value))
                       : fmt::format("{}{}", kind == 'e' ? "enumerator " : "", value);
  }

  std::string_view rest_;
};

}  // namespace

std::string plain_difference(std::string_view now, std::string_view then) {
  Items a(now), b(then);
  for (int values = 0;;) {
    const std::optional<Item> x = a.next(), y = b.next();
    const std::string here = x ? x->text : "nothing", before = y ? y->text : "nothing";
    values += x && x->is_value;
    if (here != before && x && y && x->is_value && y->is_value)
      return fmt::format("plain value {} is {}, was {}", values, here, before);
    if (here != before) return fmt::format("the structure of the arguments differs: {}, was {}", here, before);
    if (!x) return "plain values differ in bits that are not shown";
  }
}

}  // namespace tutti::graph
