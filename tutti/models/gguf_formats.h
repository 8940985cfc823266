// Which format each tensor of a GGUF file has.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/models/decoder_config.h"
#include "tutti/models/file_type.h"
#include "tutti/models/weight_source.h"

namespace tutti::models {

// For a quantized type, the choice of llama.cpp (`llama-quantize` without importance weights and overrides): the head
// has more bits, some layers have more in the projection of values and in the last one of the feed-forward, and models
// of 8 experts have more in their few attention weights. Rows that are no whole blocks have a format of smaller blocks,
// else F16.
class GgufFormats {
 public:
  // Without a type, tensors stay as the source has them. `config` must outlive this.
  GgufFormats(const DecoderConfig& config, std::optional<FileType> type);

  // The format of the weight, whose name in the file is `name`. UsageError for a dtype that GGUF files do not hold,
  // unless there is a type.
  BlockFormat choose(std::string_view name, const SourceWeight& weight);
  // Which tensors have a format of smaller blocks, and how many are quantized for the second time.
  std::vector<std::string> notes() const;

 private:
  BlockFormat wanted(std::string_view name) const;

  const DecoderConfig& config_;
  const FileTypeRow* type_;  // nullptr: none
  std::vector<int64_t> layers_with_values_;
  std::map<std::pair<BlockFormat, BlockFormat>, std::vector<std::string>> smaller_;  // names, by what was wanted
  int64_t quantized_twice_ = 0;
};

}  // namespace tutti::models
