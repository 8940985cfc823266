// A small model with odd sizes, trained for some steps by ranks that divide its parameters: what the tests of
// fully_shard() compare.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/run_ranks.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/norm.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/shards.h"

namespace tutti::parallel {

constexpr int64_t kShards = 8, kRows = 3, kVocabulary = 13, kDim = 10, kHidden = 7;

struct Block final : nn::Module {
  Block() : norm(this, "norm", kDim), up(this, "up", kDim, kHidden), down(this, "down", kHidden, kDim) {}
  Tensor forward(const Tensor& x) const;
  nn::Child<nn::RMSNorm> norm;
  nn::Child<nn::Linear> up, down;
};

// Two blocks between an embedding and the head, which is the embedding again. Sizes are odd: some ranks store less, or
// nothing, of [7] and [10].
struct Model final : nn::Module {
  Model() : embed(this, "embed", kVocabulary, kDim), blocks(this, "blocks") {
    for (int i = 0; i < 2; ++i) blocks->add();
    frozen = register_parameter("frozen", {1}, nn::Init::ones());
    frozen.requires_grad_(false);
  }
  Tensor losses(const Tensor& tokens, const Tensor& labels, bool checkpoints) const;
  nn::Child<nn::Embedding> embed;
  nn::Child<nn::ModuleList<Block>> blocks;
  nn::Parameter frozen;
  std::function<void(std::string_view what)> before_read = {};  // a rank that reads late
};

Tensor numbers(int64_t step, int64_t shard, int64_t salt);

struct Options {
  int replicas = 1;
  Schedule schedule = Schedule::once_a_step;
  Overlap overlap = Overlap::none;
  std::optional<ReshardAfterForward> reshard = {};
  int dim = 0;
  DType dtype = DType::f32;
  bool compiled = false, checkpoints = false, values_before = false, sgd = false;
  int64_t input_buffers = 2;
  OuterDpSharding outer = OuterDpSharding::no_shard;
  int prefetch = 1;
  // Sets lists of modules to gather ahead, of the blocks and of the whole model.
  std::function<void(Model& model, const std::vector<ShardedModule>& blocks, const ShardedModule& root)> set_lists = {};
  std::function<void(std::string_view what)> before_read = {};
  bool evaluates = false;  // after each step, and steps once more without another exchange
};

struct Trained {
  std::vector<uint64_t> losses;
  std::vector<uint32_t> norms;
  std::map<std::string, std::vector<float>> weights;
  std::weak_ptr<const dist::DeviceMesh> mesh = {};  // of the model
};

dist::Mesh mesh_for(const comm::ProcessGroup& group, int replicas);

// Three steps of this rank. A null group: one rank that shards nothing.
Trained train(comm::ProcessGroup* group, const Options& options);

void expect_the_bits_of_one_rank(int ranks, const Options& options, const std::string& transport = "");

}  // namespace tutti::parallel
