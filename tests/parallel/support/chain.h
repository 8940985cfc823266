// A chain of blocks of one matrix each, whose ranks gather them one after another: what tests of the order of gathers
// and their memory run.
#pragma once

#include <string>

#include "tests/parallel/support/sharded_training.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/profiler.h"

namespace tutti::parallel {

constexpr int64_t kWidth = 128;

// Blocks of one matrix each, which the model calls one after another.
struct Chain final : nn::Module {
  explicit Chain(int64_t count) : blocks(this, "blocks") {
    for (int64_t i = 0; i < count; ++i) blocks->add(kWidth, kWidth, nn::LinearOptions{.bias = false});
    scale = register_parameter("scale", {kWidth}, nn::Init::ones());
  }
  Tensor forward(const Tensor& x) const {
    Tensor y = mul(x, scale.use());
    for (const nn::Child<nn::Linear>& block : *blocks) y = tanh(block(y));
    return sum(y);
  }
  nn::Child<nn::ModuleList<nn::Linear>> blocks;
  nn::Parameter scale;
};

// The blocks of those numbers that there are.
inline std::vector<nn::Module*> blocks_of(Chain& model, std::initializer_list<int64_t> numbers) {
  std::vector<nn::Module*> list;
  for (const int64_t i : numbers) {
    if (i >= 0 && i < std::ssize(*model.blocks)) list.push_back(&*(*model.blocks)[static_cast<size_t>(i)]);
  }
  return list;
}

struct ShardedChain {
  explicit ShardedChain(comm::ProcessGroup& group, int64_t count = 4) : model(count) {
    for (nn::Child<nn::Linear>& block : *model.blocks)
      blocks.push_back(fully_shard(*block, {.mesh = mesh_for(group, 1)}));
    root = fully_shard(model, {.mesh = mesh_for(group, 1)});
    nn::initialize(model);
    shards.emplace(2, &group, nn::leaves_of(model.named_parameters()));
  }
  // Each gathers the two that come after it, and nothing else is gathered ahead.
  void look_two_ahead() {
    root->set_prefetch(0);
    for (int64_t i = 0; i < std::ssize(blocks); ++i) {
      blocks[static_cast<size_t>(i)].set_modules_to_forward_prefetch(blocks_of(model, {i + 1, i + 2}));
      blocks[static_cast<size_t>(i)].set_modules_to_backward_prefetch(blocks_of(model, {i - 1, i - 2}));
    }
  }
  // The shard of this rank.
  Shard open() { return shards->open(shards->local_shards()[0]); }
  void run() {
    Shard shard = open();
    shard.backward(reshape(nn::call(model, full({2, kWidth}, 0.5)), {1}));
  }
  Chain model;
  std::vector<ShardedModule> blocks;
  std::optional<ShardedModule> root;
  std::optional<Shards> shards;
};

// The gathers in a trace, by time: "start NAME" and "end".
inline std::vector<std::string> gathers_in(const Trace& trace) {
  std::vector<std::pair<int64_t, std::string>> events;
  constexpr std::string_view kStart = "FSDP::all_gather_copy_in ", kEnd = "FSDP::all_gather";
  for (const TraceHarvest::Thread& thread : trace.threads) {
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      const std::string_view name = event.name == nullptr ? "" : event.name;
      if (name.starts_with(kStart))
        events.emplace_back(event.begin_ns, "start " + std::string(name.substr(kStart.size())));
      else if (name == kEnd) events.emplace_back(event.end_ns, "end");
    }
  }
  std::ranges::sort(events);
  std::vector<std::string> names;
  for (const auto& [time, name] : events) names.push_back(name);
  return names;
}

// The bytes of parameters that this rank holds.
inline int64_t held_bytes() {
  return RankContext::current().allocator().statistics().current_by_category[static_cast<size_t>(
      MemoryCategory::parameters)];
}

}  // namespace tutti::parallel
