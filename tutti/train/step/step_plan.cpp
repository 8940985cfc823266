#include "tutti/train/step/step_plan.h"

#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/moe.h"
#include "tutti/ops/chunked_loss/bound_error.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/fake.h"
#include "tutti/ops/sum_to.h"
#include "tutti/parallel/dispatch_counts.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/gradient_buckets.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/parallel/gradient_tree.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/size_class.h"
#include "tutti/runtime/thread_pool.h"
#include "tutti/train/step/evaluate.h"
#include "tutti/train/step/expert_exchange.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/shard_model.h"
#include "tutti/train/step/shard_step.h"
#include "tutti/train/step/tensor_ranks.h"
#include "tutti/train/survival/survival_rules.h"

namespace tutti::train {
namespace {

constexpr int64_t kF32 = 4;

int64_t& of(RankMemory& memory, MemoryCategory category) { return memory.by_category[static_cast<size_t>(category)]; }

bool is_every_round(const Config& config) { return config.parallelism.data_parallel_schedule == "every_round"; }

// Whether masters, optimizer state and reduced gradients lie in memory that outlives a rank, once per host
// (surviving_state.h).
bool outlives_ranks(const Config& config, const StepPlan& plan) {
  return config.training.survive_rank_loss && plan.is_shared && plan.ranks > 1;
}

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

int64_t f32_block(const Extents& sizes) { return block_bytes(kF32 * numel_of(sizes)); }

// One use of each gradient, or all of them.
int64_t set_bytes(const parallel::UseLayout& layout, bool all_uses) {
  int64_t bytes = 0;
  for (const auto& uses : layout) {
    if (!uses.empty()) bytes += f32_block(uses[0]) * (all_uses ? std::ssize(uses) : 1);
  }
  return bytes;
}

// All uses of all gradients, without what the allocator rounds them up to.
int64_t dense_bytes(const parallel::UseLayout& layout) {
  int64_t bytes = 0;
  for (const auto& uses : layout) {
    if (!uses.empty()) bytes += kF32 * numel_of(uses[0]) * std::ssize(uses);
  }
  return bytes;
}

}  // namespace

int64_t RankMemory::peak() const { return std::accumulate(by_category.begin(), by_category.end(), int64_t{0}); }

int64_t PlannedTensor::most() const { return *std::max_element(stored_bytes.begin(), stored_bytes.end()); }

int64_t StepPlan::host_bytes(int64_t count) const {
  int64_t bytes = 0;
  for (int64_t r = 0; r < count; ++r) bytes += of_ranks[static_cast<size_t>(r % std::ssize(of_ranks))].peak();
  return bytes;
}

const RankMemory& StepPlan::largest() const {
  return *std::max_element(of_ranks.begin(), of_ranks.end(),
                           [](const RankMemory& a, const RankMemory& b) { return a.peak() < b.peak(); });
}

// For one degree of tensor and expert parallelism. Sizes of parameters and gradients are those of the part that the
// first of these ranks has, which is the largest.
struct StepPlanner::State {
  // Forward and backward of shards on one rank.
  struct Shards {
    std::array<int64_t, kNumMemoryCategories> at_peak{};  // without parameters
    parallel::UseLayout layout;                           // of the gradients
    double tensor_bytes = 0;                              // that tensor-parallel ranks exchange
  };
  struct PlannedParameter {
    std::string name;
    Extents whole, sizes;
    DType use_dtype;
    int block;       // of the model, which fully_shard() takes by itself; -1: of none
    bool is_expert;  // which ranks divide already, so that fewer divide it further
  };
  // Over how many data ranks a parameter is divided, the place of a rank among them, and how many ranks add its
  // gradient; and among how many replicas what is stored of it is divided further.
  struct Division {
    int64_t parts, index, adders, replicas = 1, replica = 0;
    int64_t stored_parts() const { return parts * replicas; }
  };
  Division division_of(const PlannedParameter& p, const StepPlan& plan, int64_t rank) const {
    const DataDegrees& d = plan.degrees;
    Division made = p.is_expert ? Division{d.expert_shard(), rank % d.shard * d.tensor / d.expert % d.expert_shard(),
                                           d.expert_data()}
                                : Division{d.shard, rank % d.shard, d.data()};
    if (config.parallelism.outer_dp_sharding_strategy != "optim" || made.parts == 1) return made;
    const int64_t replicas = made.adders / made.parts,
                  replica = p.is_expert ? rank * d.tensor / (made.parts * d.expert) : rank / d.shard;
    // Ranks that read one copy divide it, too.
    if (plan.is_shared) return {made.parts * replicas, replica * made.parts + made.index, made.adders};
    made.replicas = replicas, made.replica = replica;
    return made;
  }
  // The sizes of what a rank stores of a parameter.
  Extents stored_sizes(const PlannedParameter& p, const Division& division) const {
    const dist::Cut how = p.is_expert ? dist::Cut::halving : cut;
    Extents sizes = p.sizes;
    sizes[0] = dist::cut_range(sizes[0], division.index, division.parts, how).size();
    sizes[0] = dist::cut_range(sizes[0], division.replica, division.replicas, how).size();
    return sizes;
  }

  explicit State(const Config& config);
  void divided(const std::function<void(models::LanguageModel& model, const dist::Mesh& mesh)>& fn) const;
  const Shards& shards(int64_t begin, int64_t end);
  Shards taken(models::LanguageModel& model, const dist::Mesh& mesh, int64_t begin, int64_t end) const;
  void run(models::LanguageModel& model, const dist::Mesh& mesh, parallel::GradientTree& tree, int64_t begin,
           int64_t end) const;
  int64_t evaluated_rows(const StepPlan& plan) const;
  int64_t receive_buffers(int64_t evaluated_rows);
  RankMemory memory(const StepPlan& plan, int64_t rank);
  std::vector<PlannedTensor> tensors(const StepPlan& plan) const;
  int64_t parameter_memory(const StepPlan& plan, int64_t rank) const;
  int64_t exchange_memory(const StepPlan& plan, int64_t rank);
  double sent_gradients(const StepPlan& plan);
  double sent_parameters(const StepPlan& plan) const;
  double sent_activations(const StepPlan& plan);

  const Config config;
  const int64_t tensor, expert;
  const int64_t threads;  // of a rank
  const dist::Cut cut;    // of what data ranks divide
  std::vector<PlannedParameter> parameters;
  double row_bytes = 0;  // of the rows of a token that go to experts and back, in forward and backward of all layers
  std::map<std::pair<int64_t, int64_t>, Shards> known;
  std::map<int64_t, int64_t> known_buffers;  // by the rows that are evaluated at once
};

StepPlanner::State::State(const Config& config)
    : config(config),
      tensor(config.parallelism.tensor_parallel_degree),
      expert(config.parallelism.expert_parallel_degree),
      threads(config.runtime.threads > 0 ? config.runtime.threads : ThreadPool::current().threads()),
      cut(tensor == 1 ? dist::Cut::chunk : dist::Cut::halving) {
  const bool runs_again = config.activation_checkpoint.mode == "full";
  divided([&](models::LanguageModel& model, const dist::Mesh&) {
    for (const nn::NamedMoE& moe : nn::moe_layers(model)) {
      const nn::MoEOptions& o = moe.layer->options();
      const int64_t row = o.dim * itemsize(moe.layer->experts->w1.use_dtype());
      row_bytes +=
          static_cast<double>(o.router.top_k * exchanged_bytes(expert_exchange(config.parallelism), row, runs_again));
    }
    std::vector<std::string> blocks, divided_already;
    for (const nn::NamedMoE& moe : expert* tensor > 1 ? nn::moe_layers(model) : std::vector<nn::NamedMoE>())
      divided_already.push_back(moe.name + ".experts.");
    const auto starts = [](const std::string& name, const std::vector<std::string>& prefixes) {
      return std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& b) { return name.starts_with(b); });
    };
    for (const nn::NamedModule& block : repeated_blocks(model)) blocks.push_back(block.name + ".");
    for (const nn::NamedParameter& p : model.named_parameters()) {
      const auto block =
          std::find_if(blocks.begin(), blocks.end(), [&](const std::string& b) { return p.name.starts_with(b); });
      parameters.push_back({p.name, p.parameter.sizes(), p.parameter.stored().extents(), p.parameter.use_dtype(),
                            block == blocks.end() ? -1 : static_cast<int>(block - blocks.begin()),
                            starts(p.name, divided_already)});
    }
  });
}

// Calls fn with a model whose parameters are fake, and the mesh of tensor-parallel ranks or null; where ranks divide
// the model, as the first of them.
void StepPlanner::State::divided(
    const std::function<void(models::LanguageModel& model, const dist::Mesh& mesh)>& fn) const {
  const TokenGrainScope grain(config.numerics.token_grain);
  const auto model = build_model(config);
  for (const nn::NamedBuffer& buffer : model->named_buffers()) buffer.buffer.use();  // tables, which no op computes
  const auto fake_parameters = [&] {
    const FakeScope fake(threads);
    for (const nn::NamedParameter& p : model->named_parameters())
      p.parameter.set_master(fake.empty(p.parameter.sizes(), p.parameter.dtype()));
  };
  if (tensor * expert == 1) {
    fake_parameters();
    return fn(*model, nullptr);
  }
  const int64_t ranks = std::max(tensor, expert);  // of which each divides the model, the tokens or the experts
  comm::run_fake_rank(0, static_cast<int>(ranks), [&](comm::ProcessGroup&) {
    const TokenGrainScope here(config.numerics.token_grain);
    const NumericsScope numerics(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict);
    const auto innermost = [&](int64_t degree, const char* name) {
      return dist::init_device_mesh("cpu", {ranks / degree, degree}, {.names = {"others", name}})->slice({name});
    };
    const dist::Mesh experts = innermost(expert, "ep"), mesh = tensor > 1 ? innermost(tensor, "tp") : nullptr;
    fake_parameters();
    {
      const FakeScope fake(threads);
      parallel::expert_parallel(*model, experts, {.exchange = expert_exchange(config.parallelism)});
      if (tensor > 1)
        parallel::parallelize_module(*model, mesh,
                                     model->tensor_parallel_plan(config.parallelism.enable_sequence_parallel));
    }
    fn(*model, mesh);
  });
}

const StepPlanner::State::Shards& StepPlanner::State::shards(int64_t begin, int64_t end) {
  const auto before = known.find({begin, end});
  if (before != known.end()) return before->second;
  divided([&](models::LanguageModel& model, const dist::Mesh& mesh) {
    known.emplace(std::pair{begin, end}, taken(model, mesh, begin, end));
  });
  return known.at({begin, end});
}

namespace {

// Rows of fake tokens, and their labels.
std::pair<models::TokenBatch, Tensor> fake_rows(int64_t rows, int64_t length) {
  const MemoryCategoryScope category(MemoryCategory::data);
  const auto column = [&] { return zeros({rows * length}, DType::i32); };
  return {{column(), column(), column(), rows}, column()};
}

std::vector<Tensor> leaves_of(models::LanguageModel& model) {
  const MemoryCategoryScope category(MemoryCategory::parameters);
  std::vector<Tensor> leaves;
  for (const nn::NamedParameter& p : model.named_parameters()) leaves.push_back(p.parameter.leaf());
  return leaves;
}

}  // namespace

// Runs the program itself on fake tensors.
void StepPlanner::State::run(models::LanguageModel& model, const dist::Mesh& mesh, parallel::GradientTree& tree,
                             int64_t begin, int64_t end) const {
  const int64_t length = config.data.sequence_length;
  const auto [batch, labels] =
      fake_rows(config.training.global_batch_tokens / config.numerics.virtual_shards / length, length);
  const ShardStep step(model, tree, forward_options(config), false, 1.0, mesh);
  for (int64_t s = begin; s < end; ++s) {
    tree.begin(s);
    step.run(batch, labels, full(labels.sizes(), 1.0));
    tree.end();
  }
}

// The most rows that validation evaluates at once between steps.
int64_t StepPlanner::State::evaluated_rows(const StepPlan& plan) const {
  const ValidationConfig& v = config.validation;
  if (v.every == 0 || v.every >= config.training.steps) return 0;  // or after the last step
  if (v.steps < 0) return kRowsEvaluatedAtOnce;
  const DataDegrees& d = plan.degrees;
  const int64_t rows = v.steps * config.training.global_batch_tokens / config.data.sequence_length,
                evaluators = std::min(d.data(), d.expert_data());
  return std::min(kRowsEvaluatedAtOnce, (rows + evaluators - 1) / evaluators);
}

// The memory in which rows of tokens come from other ranks, in the dispatchers that keep it from one step to the next:
// that of training, and of evaluation.
int64_t StepPlanner::State::receive_buffers(int64_t rows) {
  const parallel::ExpertExchange exchange = expert_exchange(config.parallelism);
  if (expert == 1 ||
      (exchange != parallel::ExpertExchange::direct_store && exchange != parallel::ExpertExchange::gather_on_read))
    return 0;
  const auto before = known_buffers.find(rows);
  if (before != known_buffers.end()) return before->second;
  divided([&](models::LanguageModel& model, const dist::Mesh& mesh) {
    const FakeScope fake(threads);
    parallel::GradientTree tree(leaves_of(model));
    run(model, mesh, tree, 0, 1);
    if (rows > 0) {
      const NoGradScope no_grad;
      const nn::EvalScope evaluating(model);
      const auto [batch, labels] = fake_rows(rows, config.data.sequence_length);
      losses_of(model, batch, labels, forward_options(config), mesh);
    }
    known_buffers[rows] = parallel::dispatch_counts().memory_bytes;
  });
  return known_buffers.at(rows);
}

StepPlanner::State::Shards StepPlanner::State::taken(models::LanguageModel& model, const dist::Mesh& mesh,
                                                     int64_t begin, int64_t end) const {
  const FakeScope fake(threads);
  const dist::CommCounter counter;
  parallel::GradientTree tree(leaves_of(model));
  run(model, mesh, tree, begin, end);
  Shards made{
      .at_peak = fake.statistics().at_peak_by_category, .layout = tree.layout(), .tensor_bytes = counter.total().bytes};
  made.at_peak[static_cast<size_t>(MemoryCategory::parameters)] = 0;
  made.at_peak[static_cast<size_t>(MemoryCategory::workspace)] += config.training.loss_max_bytes;
  tree.clear();
  return made;
}

int64_t StepPlanner::State::parameter_memory(const StepPlan& plan, int64_t rank) const {
  int64_t masters = 0, pages = 0, own_pages = 0, root = 0, joined = 0;
  std::vector<int64_t> blocks;
  const bool lasts = outlives_ranks(config, plan);
  for (const PlannedParameter& p : parameters) {
    const bool is_copied = p.use_dtype != DType::f32;
    const int64_t copy = numel_of(p.sizes) * itemsize(p.use_dtype);
    const Division division = division_of(p, plan, rank);
    const int64_t shards = division.parts;
    if (lasts) {
      masters += kF32 * numel_of(p.sizes) / plan.ranks + (!is_copied    ? 0
                                                          : shards == 1 ? block_bytes(copy)
                                                                        : copy / shards);
      continue;
    }
    if (shards == 1) {
      masters += f32_block(p.sizes) + (is_copied ? block_bytes(copy) : 0);
      continue;
    }
    if (is_copied || !plan.is_shared) masters += f32_block(stored_sizes(p, division));
    if (division.replicas > 1) joined += copy / shards;
    if (p.block >= std::ssize(blocks)) blocks.resize(static_cast<size_t>(p.block) + 1);
    (p.block < 0 ? root : blocks[static_cast<size_t>(p.block)]) += copy;
    pages += copy;
    own_pages += copy / shards;
  }
  if (plan.degrees.shard == 1 || lasts) return masters;
  if (plan.is_shared) return masters + own_pages;
  // The peak is where backward begins: the last block has been gathered, and the one before it is on its way.
  const int64_t degree = reshard_degree(config.parallelism, plan.degrees.shard, plan.is_shared);
  const bool keeps_all = degree == 1 || blocks.empty();
  const int64_t block = blocks.empty() ? 0 : *std::max_element(blocks.begin(), blocks.end());
  const int64_t kept =
      degree == plan.degrees.shard
          ? 0
          : (std::accumulate(blocks.begin(), blocks.end(), int64_t{0}) - 2 * block) / degree;  // of the blocks before
  const int64_t brought =
      joined > 0 ? 0 : block / plan.degrees.shard;  // of a gather, unless that is the part which the rank has anyway
  return masters + joined +
         (keeps_all ? pages : std::min(pages, root + 2 * block) + brought + std::max<int64_t>(kept, 0));
}

// What gradients take while ranks exchange them.
int64_t StepPlanner::State::exchange_memory(const StepPlan& plan, int64_t rank) {
  const auto [begin, end] = shards_of(config, rank, plan.degrees.data());
  const parallel::UseLayout& layout = shards(begin, end).layout;
  const int64_t sets = set_bytes(layout, true);
  const auto nodes = std::ssize(comm::maximal_nodes(begin, end));
  if (plan.degrees.data() == 1) return sets + set_bytes(layout, false);  // uses that are added
  const int64_t ranks = plan.degrees.data(), all_nodes = [&] {
    int64_t count = 0;
    for (int64_t r = 0; r < ranks && !is_every_round(config); ++r) {
      const auto range =
          parallel::shards_of_rank(config.numerics.virtual_shards, static_cast<int>(r), static_cast<int>(ranks));
      count += std::ssize(comm::maximal_nodes(range.begin, range.end));
    }
    return is_every_round(config) ? ranks : count;
  }();
  int64_t most = 0;  // beside the gradients that wait: what is copied together, what comes in, and what is finished of
                     // a large parameter
  int64_t coming_in = 0;  // of one bucket
  for (const parallel::GradientBucket& bucket : parallel::buckets_of(
           layout, parallel::GradientPlacements(layout.size(), static_cast<int>(rank), static_cast<int>(ranks)))) {
    const int64_t bytes = kF32 * bucket.numel;
    const size_t first = bucket.parts[0].parameter;
    const int64_t finished =
        bucket.is_large ? f32_block(layout[first][0]) / division_of(parameters[first], plan, rank).stored_parts()
                        : bytes;
    coming_in = std::max(coming_in, (all_nodes * bytes + ranks - 1) / ranks);
    most = std::max(most, finished + (bucket.is_large ? 0 : nodes * bytes) + (all_nodes * bytes + ranks - 1) / ranks);
  }
  const bool overlaps =
      config.parallelism.data_parallel_overlap == "backward" && config.numerics.virtual_shards >= 2 * ranks;
  return nodes * sets + most + (overlaps ? (config.parallelism.reduce_scatter_max_input_buffers - 1) * coming_in : 0);
}

std::vector<PlannedTensor> StepPlanner::State::tensors(const StepPlan& plan) const {
  std::vector<PlannedTensor> list;
  for (const PlannedParameter& p : parameters) {
    PlannedTensor& tensor = list.emplace_back(p.name, p.whole);
    for (int64_t r = 0; r < std::ssize(plan.of_ranks); ++r)
      tensor.stored_bytes.push_back(kF32 * numel_of(stored_sizes(p, division_of(p, plan, r / plan.degrees.tensor))));
  }
  return list;
}

RankMemory StepPlanner::State::memory(const StepPlan& plan, int64_t rank) {
  const auto [begin, end] = shards_of(config, rank, plan.degrees.data());
  const Shards& program = shards(begin, end);
  RankMemory memory{.by_category = program.at_peak};
  int64_t kept = 0;  // this rank's slices of the rounds before
  if (is_every_round(config) && plan.degrees.data() > 1) {
    const int64_t last_round = (config.numerics.virtual_shards - 1) / plan.degrees.data();
    for (size_t p = 0; p < parameters.size() && last_round > 0; ++p) {
      const int64_t adders = division_of(parameters[p], plan, rank).adders;
      kept += most_nodes(0, last_round * adders) * set_bytes({program.layout[p]}, true) / adders;
    }
    of(memory, MemoryCategory::gradients) += kept;
  }
  const int64_t received = receive_buffers(evaluated_rows(plan)), of_training = receive_buffers(0);
  of(memory, MemoryCategory::activations) += received - of_training;
  const int64_t exchange = kept + exchange_memory(plan, rank);
  if (exchange + received > memory.peak()) {
    memory = {};
    of(memory, MemoryCategory::gradients) = exchange;
    of(memory, MemoryCategory::activations) = received;
  }
  of(memory, MemoryCategory::parameters) = parameter_memory(plan, rank);
  const int64_t moments = config.optimizer.name == "adamw" ? 2 : 1;
  if (outlives_ranks(config, plan)) {
    for (const PlannedParameter& p : parameters) {
      of(memory, MemoryCategory::optimizer) += moments * kF32 * numel_of(p.sizes) / plan.ranks;
      of(memory, MemoryCategory::gradients) += kF32 * numel_of(p.sizes) / plan.ranks;
      if (config.checkpoint.async)
        of(memory, MemoryCategory::workspace) += (1 + moments) * f32_block(stored_sizes(p, division_of(p, plan, rank)));
    }
    of(memory, MemoryCategory::workspace) += (1 + moments) * kF32 * kSurvivalBlock;  // what a block held before
    return memory;
  }
  for (const PlannedParameter& p : parameters) {
    const int64_t part = f32_block(stored_sizes(p, division_of(p, plan, rank)));
    of(memory, MemoryCategory::optimizer) += moments * part;
    if (config.checkpoint.async)
      of(memory, MemoryCategory::workspace) += (1 + moments) * part;  // what is saved in the background
  }
  return memory;
}

// By the rank that brings the most nodes. What others add and hand out is a slice of each gradient for every rank, or
// for every replica of a part.
double StepPlanner::State::sent_gradients(const StepPlan& plan) {
  if (plan.degrees.data() == 1 && plan.degrees.expert_data() == 1) return 0;
  const int64_t shards_in_all = config.numerics.virtual_shards;
  const auto [begin, end] = shards_of(config, 0, plan.degrees.data());
  const parallel::UseLayout& layout = shards(begin, end).layout;
  const auto ranks = static_cast<double>(plan.degrees.data());
  // Replicas in a tree over ranks add each use by itself, as all_reduce.
  if (!is_every_round(config) && plan.degrees.shard == 1 &&
      std::has_single_bit(static_cast<uint64_t>(plan.degrees.data())))
    return 2 * static_cast<double>(dense_bytes(layout)) * (ranks - 1) / ranks;
  int64_t nodes = (shards_in_all + plan.degrees.data() - 1) / plan.degrees.data();
  if (!is_every_round(config)) {
    nodes = 0;
    for (const auto& of_rank : parallel::consecutive_shards(shards_in_all, static_cast<int>(plan.degrees.data())))
      nodes = std::max(nodes, std::ssize(of_rank));
  }
  double bytes = 0;
  for (size_t p = 0; p < layout.size(); ++p) {
    if (layout[p].empty()) continue;
    const Division division = division_of(parameters[p], plan, 0);
    const auto adding = static_cast<double>(division.adders), parts = static_cast<double>(division.stored_parts()),
               placements = adding / parts;
    const double kept = static_cast<double>(kF32 * numel_of(layout[p][0])) / parts;
    bytes += static_cast<double>(nodes * dense_bytes({layout[p]})) * (adding - 1) / adding +
             kept * (placements - 1) / placements;
  }
  return bytes;
}

// Blocks that a rank gives back between forward and backward are gathered twice for each shard. For backward they come
// from those among which they were kept. What is in no block is read first and last in forward, so it is gathered once:
// a step, or with `always` a shard. Experts that ranks divide already are groups of their own, of fewer ranks, which
// keep them whole or not at all (shard_model.cpp). Once a step replicas that store pieces of a part bring them to each
// other.
double StepPlanner::State::sent_parameters(const StepPlan& plan) const {
  if (plan.degrees.shard == 1 || plan.is_shared) return 0;
  const int64_t degree = reshard_degree(config.parallelism, plan.degrees.shard, plan.is_shared);
  const bool gives_root_back = config.parallelism.fsdp_reshard_after_forward == "always";
  // The last group that is read before backward, which a compiled step does not give back: the last block, or its
  // experts where they are a group.
  int last = -1;
  for (const PlannedParameter& p : parameters) last = config.training.compile ? std::max(last, p.block) : last;
  const bool ends_with_experts = std::any_of(parameters.begin(), parameters.end(), [&](const PlannedParameter& p) {
    return p.block == last && p.is_expert && division_of(p, plan, 0).parts > 1;
  });
  const auto rounds =
      static_cast<double>((config.numerics.virtual_shards + plan.degrees.data() - 1) / plan.degrees.data());
  const auto of_others = [](int64_t ranks) { return static_cast<double>(ranks - 1) / static_cast<double>(ranks); };
  double bytes = 0;
  for (const PlannedParameter& p : parameters) {
    const auto whole = static_cast<double>(numel_of(p.sizes) * itemsize(p.use_dtype));
    const Division division = division_of(p, plan, 0);
    const int64_t kept_by = p.is_expert && degree > 1 ? division.parts : degree;
    const double forward = whole * of_others(division.parts), backward = whole * of_others(kept_by);
    const bool is_last = p.block == last && p.is_expert == ends_with_experts, is_block = p.block >= 0;
    if (kept_by > 1 && is_block) bytes += rounds * (forward + (is_last ? 0 : backward));
    else bytes += !is_block && gives_root_back ? rounds * forward : forward;
    bytes += whole / static_cast<double>(division.parts) * of_others(division.replicas);
  }
  return bytes;
}

// Rows that go to experts are counted as if all experts had equally many.
double StepPlanner::State::sent_activations(const StepPlan& plan) {
  const auto rounds =
      static_cast<double>((config.numerics.virtual_shards + plan.degrees.data() - 1) / plan.degrees.data());
  const auto tokens =
                 static_cast<double>(config.training.global_batch_tokens / config.numerics.virtual_shards / tensor),
             ranks = static_cast<double>(expert);
  return rounds * ((tensor > 1 ? shards(0, 1).tensor_bytes : 0) + tokens * row_bytes * (ranks - 1) / ranks);
}

// The bound with which all parts of the loss fit, where the first of them takes `least` bytes.
int64_t StepPlanner::least_loss_bytes(Config config, int64_t least, int64_t ranks, DataDegrees degrees,
                                      bool is_shared) {
  for (;;) {
    config.training.loss_max_bytes = least;
    try {
      StepPlanner(config).plan_within_bounds(ranks, degrees, is_shared);
      return least;
    } catch (const chunked_loss::BoundError& error) {
      least = error.least_bytes();
    }
  }
}

StepPlanner::StepPlanner(const Config& config) : config_(config) {}
StepPlanner::~StepPlanner() = default;

StepPlan StepPlanner::plan(int64_t ranks, bool is_shared) {
  return plan(ranks, data_degrees(config_.parallelism, ranks), is_shared);
}

StepPlan StepPlanner::plan(int64_t ranks, DataDegrees degrees, bool is_shared) {
  try {
    return plan_within_bounds(ranks, degrees, is_shared);
  } catch (const chunked_loss::BoundError& error) {
    throw UsageError(fmt::format(
        "training.loss_max_bytes = {} is too small for virtual shards of {} tokens of model.flavor '{}'; set it to {} "
        "or more, or to 0 to compute the loss from all logits at once",
        config_.training.loss_max_bytes, config_.training.global_batch_tokens / config_.numerics.virtual_shards,
        config_.model.flavor, least_loss_bytes(config_, error.least_bytes(), ranks, degrees, is_shared)));
  }
}

StepPlan StepPlanner::plan_within_bounds(int64_t ranks, DataDegrees degrees, bool is_shared) {
  TUTTI_CHECK(degrees.data() * degrees.tensor == ranks, "a plan of {} x {} data ranks of {} for {}", degrees.replicate,
              degrees.shard, degrees.tensor, ranks);
  parallel::shards_of_rank(config_.numerics.virtual_shards, 0, static_cast<int>(degrees.data()));
  if (degrees.shard > 1) reshard_degree(config_.parallelism, degrees.shard, is_shared);
  std::unique_ptr<State>& state = states_[{degrees.tensor, degrees.expert}];
  if (state == nullptr) {
    Config divided = config_;
    divided.parallelism.tensor_parallel_degree = degrees.tensor;
    divided.parallelism.expert_parallel_degree = degrees.expert;
    const bool has_experts = degrees.tensor * degrees.expert > 1 && !nn::moe_layers(*build_model(divided)).empty();
    divided.parallelism.data_parallel_schedule = chosen_schedule(divided.parallelism, has_experts);
    check_tensor_parallel(divided);
    check_expert_parallel(divided);
    check_survival(divided);
    state = std::make_unique<State>(divided);
  }
  StepPlan plan{.ranks = ranks, .degrees = degrees, .is_shared = is_shared};
  for (int64_t r = 0; r < std::min(ranks, kPlannedRanks); ++r) {
    if (r % degrees.tensor == 0) plan.of_ranks.push_back(state->memory(plan, r / degrees.tensor));
    else plan.of_ranks.push_back(plan.of_ranks.back());
  }
  plan.tensors = state->tensors(plan);
  plan.gradient_bytes = state->sent_gradients(plan);
  plan.parameter_bytes = state->sent_parameters(plan);
  plan.activation_bytes = state->sent_activations(plan);
  return plan;
}

}  // namespace tutti::train
