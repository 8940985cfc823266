#include "tutti/nn/block_entries.h"

#include "tutti/autograd/tape.h"
#include "tutti/core/block_format.h"
#include "tutti/core/error.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/quantized_embedding.h"

namespace tutti::nn {

std::string name_of_blocks(const std::string& parameter, BlockFormat format) {
  return fmt::format("{}.{}", parameter, name_of(format));
}

std::optional<BlockEntries::Decoded> BlockEntries::add(std::string_view name, const Extents& sizes, DType dtype) {
  if (dtype != DType::u8 || sizes.ndim() < 2 || sizes.ndim() > 3) return std::nullopt;
  for (const BlockFormat format : quantized::block_formats()) {
    const std::string ending = name_of_blocks("", format);
    if (!name.ends_with(ending) || sizes.back() % row_of(format).nbytes != 0) continue;
    const auto [entry, is_new] =
        entries_.emplace(std::string(name.substr(0, name.size() - ending.size())), Entry{std::string(name), format});
    TUTTI_CHECK(is_new, "the values of '{}' are there twice, as '{}' and as '{}'", entry->first, entry->second.name,
                name);
    Decoded decoded{entry->first, sizes};
    decoded.sizes.back() = quantized::elements_of_row(sizes.back(), format).value();
    return decoded;
  }
  return std::nullopt;
}

const BlockEntries::Entry* BlockEntries::find(const std::string& parameter) const {
  const auto found = entries_.find(parameter);
  return found == entries_.end() ? nullptr : &found->second;
}

void take_blocks(const Parameter& parameter, const Tensor& blocks, BlockFormat format, bool shares_memory) {
  if (!parameter.can_hold_blocks()) return parameter.assign(dequantize(blocks, format));
  parameter.freeze(shares_memory ? blocks : clone(detach(blocks)), format);
}

}  // namespace tutti::nn
