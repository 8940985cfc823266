// Numbers and texts as bytes of a section. What is read is checked; nothing is allocated for a count that the bytes
// cannot hold.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "tutti/deploy/package_error.h"

namespace tutti::deploy {

class ByteWriter {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ByteReader {
 public:
  // `what` names the bytes in errors and must live as long.
  ByteReader(std::string_view bytes, const char* what) : bytes_(bytes), what_(what) {}
  template <class T>
  T get() {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    const std::string_view part = take(sizeof(T));
    T value;
    std::memcpy(&value, part.data(), sizeof(T));
    return value;
  }
  std::string_view get_text() { return take(get<uint64_t>()); }
  // A number of items that take at least `least` bytes each.
  size_t get_count(size_t least) {
    const auto count = get<uint64_t>();
    TUTTI_CHECK_PACKAGE(count <= bytes_.size() / least, "the {} of the package say that {} items follow in {} bytes",
                        what_, count, bytes_.size());
    return count;
  }
  // A value from 0 to `most`.
  template <class T>
  T get_up_to(T most) {
    const T value = get<T>();
    using Number = std::conditional_t<std::is_enum_v<T>, uint64_t, T>;
    TUTTI_CHECK_PACKAGE(static_cast<Number>(value) <= static_cast<Number>(most),
                        "the {} of the package hold {} where at most {} is known", what_, static_cast<Number>(value),
                        static_cast<Number>(most));
    return value;
  }
  void at_end() const {
    TUTTI_CHECK_PACKAGE(bytes_.empty(), "the {} of the package have {} bytes too many", what_, bytes_.size());
  }

 private:
  std::string_view take(uint64_t nbytes) {
    TUTTI_CHECK_PACKAGE(nbytes <= bytes_.size(), "the {} of the package end {} bytes early", what_,
                        nbytes - bytes_.size());
    const std::string_view part = bytes_.substr(0, nbytes);
    bytes_.remove_prefix(nbytes);
    return part;
  }
  std::string_view bytes_;
  const char* what_;
};

}  // namespace tutti::deploy
