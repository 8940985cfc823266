// GGUF files byte by byte, also those that no writer would make.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::testing {

struct GgufBytes {
  std::string bytes;

  template <class T>
  GgufBytes& put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    return *this;
  }
  GgufBytes& u32(uint32_t value) { return put(value); }
  GgufBytes& u64(uint64_t value) { return put(value); }
  GgufBytes& text(std::string_view value) {
    u64(value.size());
    bytes += value;
    return *this;
  }
  GgufBytes& zeros(size_t count) {
    bytes.append(count, '\0');
    return *this;
  }
  GgufBytes& pad(size_t alignment = 32) { return zeros((alignment - bytes.size() % alignment) % alignment); }

  static GgufBytes head(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    GgufBytes file{"GGUF"};
    return file.u32(version).u64(tensors).u64(keys);
  }
  // The description of a tensor, whose sizes are given as files have them: the fastest-varying first.
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
};

}  // namespace tutti::testing
