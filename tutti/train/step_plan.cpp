#include "tutti/train/step_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "tutti/core/error.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/fake.h"
#include "tutti/parallel/gradient_buckets.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/runtime/size_class.h"
#include "tutti/train/run_model.h"
#include "tutti/train/shard_model.h"
#include "tutti/train/shard_step.h"
#include "tutti/train/survival_rules.h"

namespace tutti::train {
namespace {

constexpr int64_t kF32 = 4;

int64_t& of(RankMemory& memory, MemoryCategory category) { return memory.by_category[static_cast<size_t>(category)]; }

bool is_every_round(const Config& config) { return config.parallelism.data_parallel_schedule == "every_round"; }

// Whether masters, optimizer state and reduced gradients lie in memory that outlives a rank, once per host (lasting_state.h).
bool outlives_ranks(const Config& config, const StepPlan& plan) { return config.training.survive_rank_loss && plan.is_shared && plan.ranks > 1; }

// The most nodes that the shards of any beginning of [begin, end) make.
int64_t most_nodes(int64_t begin, int64_t end) {
  size_t most = 0;
  for (int64_t to = begin + 1; to <= end; ++to) most = std::max(most, comm::maximal_nodes(begin, to).size());
  return static_cast<int64_t>(most);
}

// The shards of a rank at whose end the most gradients wait: those that decide its peak.
parallel::ShardRange shards_of(const Config& config, int64_t rank, int64_t ranks) {
  if (is_every_round(config) && ranks > 1) return {0, 1};  // the others' gradients have gone to their owners by then
  return parallel::shards_of_rank(config.numerics.virtual_shards, static_cast<int>(rank), static_cast<int>(ranks));
}

// The sizes of what shard `index` of `count` stores of a tensor that is cut as torch.chunk does.
Extents part_sizes(Extents sizes, int64_t index, int64_t count) {
  const int64_t rows = sizes[0], chunk = (rows + count - 1) / count;
  sizes[0] = std::clamp<int64_t>(rows - index * chunk, 0, chunk);
  return sizes;
}

int64_t f32_block(const Extents& sizes) { return block_bytes(kF32 * numel_of(sizes)); }

// One use of each gradient, or all of them.
int64_t set_bytes(const parallel::UseLayout& layout, bool all_uses) {
  int64_t bytes = 0;
  for (const auto& uses : layout) {
    if (!uses.empty()) bytes += f32_block(uses[0]) * (all_uses ? std::ssize(uses) : 1);
  }
  return bytes;
}

double gib(int64_t bytes) { return static_cast<double>(bytes) / (int64_t{1} << 30); }

}  // namespace

int64_t RankMemory::peak() const { return std::accumulate(by_category.begin(), by_category.end(), int64_t{0}); }

int64_t StepPlan::host_bytes(int64_t count) const {
  int64_t bytes = 0;
  for (int64_t r = 0; r < count; ++r) bytes += of_ranks[static_cast<size_t>(r % std::ssize(of_ranks))].peak();
  return bytes;
}

const RankMemory& StepPlan::largest() const {
  return *std::max_element(of_ranks.begin(), of_ranks.end(), [](const RankMemory& a, const RankMemory& b) { return a.peak() < b.peak(); });
}

struct StepPlanner::State {
  // Forward and backward of shards on one rank.
  struct Shards {
    std::array<int64_t, kNumMemoryCategories> at_peak{};  // without parameters
    parallel::UseLayout layout;                           // of the gradients
  };
  struct PlannedParameter {
    Extents sizes;
    DType use_dtype;
    int block;  // of the model, which fully_shard() takes by itself; -1: of none
  };

  explicit State(const Config& config);
  const Shards& shards(int64_t begin, int64_t end);
  RankMemory memory(const StepPlan& plan, int64_t rank);
  int64_t parameter_memory(const StepPlan& plan, int64_t rank) const;
  int64_t exchange_memory(const StepPlan& plan, int64_t rank);
  double sent_gradients(const StepPlan& plan);
  double sent_parameters(const StepPlan& plan) const;

  const Config config;
  std::vector<PlannedParameter> parameters;
  std::map<std::pair<int64_t, int64_t>, Shards> known;
};

StepPlanner::State::State(const Config& config) : config(config) {
  const auto model = build_model(config);
  std::vector<std::string> blocks;
  for (const nn::NamedModule& block : repeated_blocks(*model)) blocks.push_back(block.name + ".");
  for (const nn::NamedParameter& p : model->named_parameters()) {
    const auto block = std::find_if(blocks.begin(), blocks.end(), [&](const std::string& b) { return p.name.starts_with(b); });
    parameters.push_back({p.parameter.sizes(), p.parameter.use_dtype(), block == blocks.end() ? -1 : static_cast<int>(block - blocks.begin())});
  }
}

// Runs the program itself on fake tensors.
const StepPlanner::State::Shards& StepPlanner::State::shards(int64_t begin, int64_t end) {
  if (const auto before = known.find({begin, end}); before != known.end()) return before->second;
  const auto model = build_model(config);
  const int64_t length = config.data.sequence_length, tokens = config.training.global_batch_tokens / config.numerics.virtual_shards;
  for (const nn::NamedBuffer& buffer : model->named_buffers()) buffer.buffer.use();  // tables, which no op computes

  const FakeScope fake;
  const auto column = [&] {
    const MemoryCategoryScope category(MemoryCategory::data);
    return fake.empty({tokens}, DType::i32);
  };
  const models::TokenBatch batch{column(), column(), column(), tokens / length};
  const Tensor labels = column();
  std::vector<Tensor> leaves;
  {
    const MemoryCategoryScope category(MemoryCategory::parameters);
    for (const nn::NamedParameter& p : model->named_parameters()) {
      p.parameter.set_master(fake.empty(p.parameter.sizes(), p.parameter.dtype()));
      leaves.push_back(p.parameter.leaf());
    }
  }
  parallel::GradientTree tree(leaves);
  const ShardStep step(*model, tree, forward_options(config), false);
  for (int64_t s = begin; s < end; ++s) {
    tree.begin(s);
    step.run(batch, labels, full(labels.sizes(), 1.0));
    tree.end();
  }
  Shards made{.at_peak = fake.statistics().at_peak_by_category, .layout = tree.layout()};
  made.at_peak[static_cast<size_t>(MemoryCategory::parameters)] = 0;
  made.at_peak[static_cast<size_t>(MemoryCategory::workspace)] += config.training.loss_max_bytes;
  tree.clear();
  return known.emplace(std::pair{begin, end}, std::move(made)).first->second;
}

int64_t StepPlanner::State::parameter_memory(const StepPlan& plan, int64_t rank) const {
  const int64_t shards = plan.degrees.shard;
  int64_t masters = 0, pages = 0, root = 0;
  std::vector<int64_t> blocks;
  const bool lasts = outlives_ranks(config, plan);
  for (const PlannedParameter& p : parameters) {
    const bool is_copied = p.use_dtype != DType::f32;
    const int64_t copy = numel_of(p.sizes) * itemsize(p.use_dtype);
    if (lasts) {
      masters += kF32 * numel_of(p.sizes) / plan.ranks + (!is_copied ? 0 : shards == 1 ? block_bytes(copy) : copy / shards);
      continue;
    }
    if (shards == 1) {
      masters += f32_block(p.sizes) + (is_copied ? block_bytes(copy) : 0);
      continue;
    }
    if (is_copied || !plan.is_shared) masters += f32_block(part_sizes(p.sizes, rank % shards, shards));
    if (p.block >= std::ssize(blocks)) blocks.resize(static_cast<size_t>(p.block) + 1);
    (p.block < 0 ? root : blocks[static_cast<size_t>(p.block)]) += copy;
    pages += copy;
  }
  if (shards == 1 || lasts) return masters;
  if (plan.is_shared) return masters + pages / shards;
  // The peak is where backward begins: the last block has been gathered, and the one before it is on its way.
  const bool keeps_all = config.training.compile || config.parallelism.fsdp_reshard_after_forward == "never" || blocks.empty();
  const int64_t block = blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end());
  return masters + (keeps_all ? pages : std::min(pages, root + 2 * block) + block / shards);
}

// What gradients take while ranks exchange them.
int64_t StepPlanner::State::exchange_memory(const StepPlan& plan, int64_t rank) {
  const auto [begin, end] = shards_of(config, rank, plan.ranks);
  const parallel::UseLayout& layout = shards(begin, end).layout;
  const int64_t sets = set_bytes(layout, true);
  const auto nodes = std::ssize(comm::maximal_nodes(begin, end));
  if (plan.ranks == 1) return sets + set_bytes(layout, false);  // uses that are added
  const int64_t ranks = plan.ranks, all_nodes = [&] {
    int64_t count = 0;
    for (int64_t r = 0; r < ranks && !is_every_round(config); ++r) {
      const auto range = parallel::shards_of_rank(config.numerics.virtual_shards, static_cast<int>(r), static_cast<int>(ranks));
      count += std::ssize(comm::maximal_nodes(range.begin, range.end));
    }
    return is_every_round(config) ? ranks : count;
  }();
  int64_t most = 0;  // beside the gradients that wait: what is copied together, what comes in, and what is finished of a large parameter
  for (const parallel::GradientBucket& bucket : parallel::buckets_of(layout, parallel::Keepers(layout.size(), static_cast<int>(rank), static_cast<int>(ranks)))) {
    const int64_t bytes = kF32 * bucket.numel;
    const int64_t finished = bucket.is_large ? f32_block(layout[bucket.parts[0].parameter][0]) / plan.degrees.shard : bytes;
    most = std::max(most, finished + (bucket.is_large ? 0 : nodes * bytes) + (all_nodes * bytes + ranks - 1) / ranks);
  }
  return nodes * sets + most;
}

RankMemory StepPlanner::State::memory(const StepPlan& plan, int64_t rank) {
  const auto [begin, end] = shards_of(config, rank, plan.ranks);
  const Shards& program = shards(begin, end);
  RankMemory memory{.by_category = program.at_peak};
  int64_t kept = 0;  // this rank's slices of the rounds before
  if (is_every_round(config) && plan.ranks > 1) {
    const int64_t last_round = (config.numerics.virtual_shards - 1) / plan.ranks;
    if (last_round > 0) kept = most_nodes(0, last_round * plan.ranks) * set_bytes(program.layout, true) / plan.ranks;
    of(memory, MemoryCategory::gradients) += kept;
  }
  const int64_t exchange = kept + exchange_memory(plan, rank);
  if (exchange > memory.peak()) {
    memory = {};
    of(memory, MemoryCategory::gradients) = exchange;
  }
  of(memory, MemoryCategory::parameters) = parameter_memory(plan, rank);
  const int64_t moments = config.optimizer.name == "adamw" ? 2 : 1;
  if (outlives_ranks(config, plan)) {
    for (const PlannedParameter& p : parameters) {
      of(memory, MemoryCategory::optimizer) += moments * kF32 * numel_of(p.sizes) / plan.ranks;
      of(memory, MemoryCategory::gradients) += kF32 * numel_of(p.sizes) / plan.ranks;
    }
    of(memory, MemoryCategory::workspace) += (1 + moments) * kF32 * kSurvivalBlock;  // what a block held before
    return memory;
  }
  for (const PlannedParameter& p : parameters) of(memory, MemoryCategory::optimizer) += moments * f32_block(part_sizes(p.sizes, rank % plan.degrees.shard, plan.degrees.shard));
  return memory;
}

// By the rank that brings the most nodes. What others add and hand out is a slice of each gradient for every rank, or for every replica of a part.
double StepPlanner::State::sent_gradients(const StepPlan& plan) {
  if (plan.ranks == 1) return 0;
  const int64_t shards_in_all = config.numerics.virtual_shards;
  const auto [begin, end] = shards_of(config, 0, plan.ranks);
  double elements = 0, uses = 0;
  for (const auto& of_parameter : shards(begin, end).layout) {
    if (of_parameter.empty()) continue;
    const auto numel = static_cast<double>(numel_of(of_parameter[0]));
    elements += numel;
    uses += numel * static_cast<double>(of_parameter.size());
  }
  int64_t nodes = (shards_in_all + plan.ranks - 1) / plan.ranks;
  if (!is_every_round(config)) {
    nodes = 0;
    for (const auto& of_rank : parallel::consecutive_shards(shards_in_all, static_cast<int>(plan.ranks))) nodes = std::max(nodes, std::ssize(of_rank));
  }
  const auto ranks = static_cast<double>(plan.ranks), keepers = plan.degrees.shard == 1 ? ranks : static_cast<double>(plan.degrees.replicate);
  const double kept = elements / static_cast<double>(plan.degrees.shard);
  return kF32 * (static_cast<double>(nodes) * uses * (ranks - 1) / ranks + kept * (keepers - 1) / keepers);
}

// Blocks that a rank gives back between forward and backward are gathered twice for each shard, other parameters once a step.
double StepPlanner::State::sent_parameters(const StepPlan& plan) const {
  if (plan.degrees.shard == 1 || plan.is_shared) return 0;
  const bool keeps_all = config.training.compile || config.parallelism.fsdp_reshard_after_forward == "never";
  const int64_t rounds = (config.numerics.virtual_shards + plan.ranks - 1) / plan.ranks;
  int64_t bytes = 0;
  for (const PlannedParameter& p : parameters) bytes += numel_of(p.sizes) * itemsize(p.use_dtype) * (keeps_all || p.block < 0 ? 1 : 2 * rounds);
  const auto shards = static_cast<double>(plan.degrees.shard);
  return static_cast<double>(bytes) * (shards - 1) / shards;
}

StepPlanner::StepPlanner(const Config& config) : state_(std::make_unique<State>(config)) {}
StepPlanner::~StepPlanner() = default;

StepPlan StepPlanner::plan(int64_t ranks, bool is_shared) { return plan(ranks, data_degrees(state_->config.parallelism, ranks), is_shared); }

StepPlan StepPlanner::plan(int64_t ranks, DataDegrees degrees, bool is_shared) {
  TUTTI_CHECK(degrees.tensor == 1, "this version plans no step of ranks that divide the model: parallelism.tensor_parallel_degree = {}; with 1 the plan is that of a rank that has all of it",
              degrees.tensor);
  TUTTI_CHECK(degrees.data() == ranks, "a plan of {} x {} data ranks for {}", degrees.replicate, degrees.shard, ranks);
  parallel::shards_of_rank(state_->config.numerics.virtual_shards, 0, static_cast<int>(ranks));
  StepPlan plan{.ranks = ranks, .degrees = degrees, .is_shared = is_shared};
  for (int64_t r = 0; r < std::min(ranks, kPlannedRanks); ++r) plan.of_ranks.push_back(state_->memory(plan, r));

  plan.gradient_bytes = state_->sent_gradients(plan);
  plan.parameter_bytes = state_->sent_parameters(plan);
  return plan;
}

void check_memory(const Config& config, int64_t ranks, int64_t local_ranks, bool is_shared, int64_t available) {
  constexpr double kTrust = 0.9;
  // Ranks that divide a model take together at least what one with all of it does.
  DataDegrees degrees = data_degrees(config.parallelism, ranks);
  const int64_t parts = std::exchange(degrees.tensor, 1);
  const StepPlan plan = StepPlanner(config).plan(degrees.data(), degrees, is_shared);
  const int64_t needed = parts > local_ranks ? plan.host_bytes(1) * local_ranks / parts : plan.host_bytes(local_ranks / parts);
  if (kTrust * static_cast<double>(needed) <= static_cast<double>(available)) return;
  const RankMemory& most = plan.largest();
  const auto part = [&](MemoryCategory category) { return gib(most.by_category[static_cast<size_t>(category)]); };
  throw UsageError(fmt::format(
      "a step of {} rank{} of this host needs {:.1f} GiB, and there are {:.1f}: {:.1f} GiB a rank for parameters, {:.1f} for gradients, {:.1f} for the optimizer and {:.1f} for "
      "activations (of virtual shards of {} tokens). Use a smaller model.flavor than '{}', more numerics.virtual_shards, or other degrees of parallelism; "
      "`tutti plan CONFIG -n {} --all` compares them", local_ranks, local_ranks == 1 ? "" : "s", gib(needed), gib(available), part(MemoryCategory::parameters), part(MemoryCategory::gradients),
      part(MemoryCategory::optimizer), part(MemoryCategory::activations), config.training.global_batch_tokens / config.numerics.virtual_shards, config.model.flavor, ranks));
}

}  // namespace tutti::train
