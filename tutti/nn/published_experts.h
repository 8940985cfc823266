// Experts under the names of published models, where each has tensors of its own, and under those of this library,
// where the weights of all lie in one.
//
//   model.layers.0.mlp.experts.3.gate_proj.weight [F, D]   is row 3 of   model.layers.0.mlp.experts.w1 [E, F, D]
//   model.layers.0.mlp.experts.3.down_proj.weight [D, F]                 model.layers.0.mlp.experts.w2 [E, D, F]
//   model.layers.0.mlp.experts.3.up_proj.weight   [F, D]                 model.layers.0.mlp.experts.w3 [E, F, D]
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/nn/state_dict.h"

namespace tutti {
class ModelFile;
enum class BlockFormat : uint8_t;
}  // namespace tutti

namespace tutti::nn {

struct ExpertName {
  std::string grouped;  // of the tensor of all experts
  int64_t expert;
};
// The place of a published tensor; nothing when it is not that of an expert.
std::optional<ExpertName> expert_name_in(std::string_view published);
// The other way. UsageError for a name that is not that of a tensor of all experts.
std::string published_expert_name(std::string_view grouped, int64_t expert);

// The tensors with each expert under its published name; they share memory with those given. Biases of routers, which
// published models do not have, are left out when they are 0.
StateDict published(const StateDict& state);

// The tensors of a file, with those of experts put together. A router without a bias in a file of published names has
// one of zeros.
class GroupedTensors {
 public:
  struct Entry {
    std::string name;
    Extents sizes;
    DType dtype;
    std::string text;                                  // for messages
    bool is_decoded = true;                            // whether tensor() gives its values
    std::optional<BlockFormat> blocks = std::nullopt;  // of a tensor of the file that is stored as blocks
  };
  // `file` must outlive this. Put together are those tensors that somebody `wants` under their common name; a list of
  // modules may be named "experts", too.
  GroupedTensors(const ModelFile& file, const std::function<bool(const std::string& name)>& wants);
  const std::vector<Entry>& entries() const { return entries_; }
  bool contains(const std::string& name) const { return groups_.contains(name) || is_whole(name); }
  // The values: a view of the file's pages, or in new memory where they were put together.
  Tensor tensor(const std::string& name) const;
  // As ModelFile::blocks(); in new memory where they were put together, which takes one format.
  Tensor blocks(const std::string& name) const;

 private:
  bool is_whole(const std::string& name) const;

  const ModelFile& file_;
  std::vector<Entry> entries_;
  std::map<std::string, std::map<int64_t, std::string>> groups_;  // grouped name -> published name by expert
  std::map<std::string, int64_t> biases_;                         // those of zeros, of how many experts
};

}  // namespace tutti::nn
