// Entries of quantized blocks in state dicts: "fc.weight.Q4_K", u8 [rows, bytes of a row], stands for the parameter
// "fc.weight" [rows, elements of a row]; those of experts have a dim of these in front.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/core/shape.h"
#include "tutti/nn/parameter.h"

namespace tutti::nn {

// The name of the entry of a parameter that is held as blocks.
std::string name_of_blocks(const std::string& parameter, BlockFormat format);

// The entries of blocks in a source of values, by their parameters.
class BlockEntries {
 public:
  struct Entry {
    std::string name;  // of the entry
    BlockFormat format;
  };
  struct Decoded {
    std::string_view name;  // of the parameter; it lives as long as this object
    Extents sizes;
  };
  // What an entry stands for; nothing where it is none of blocks. UsageError for a second one of the same parameter.
  std::optional<Decoded> add(std::string_view name, const Extents& sizes, DType dtype);
  // The entry of a parameter, or null.
  const Entry* find(const std::string& parameter) const;

 private:
  std::map<std::string, Entry> entries_;
};

// Freezes `parameter` to blocks, which it shares or copies, or assigns their numbers where it cannot hold blocks.
void take_blocks(const Parameter& parameter, const Tensor& blocks, BlockFormat format, bool shares_memory);

}  // namespace tutti::nn
