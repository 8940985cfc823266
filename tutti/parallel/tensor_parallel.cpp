#include "tutti/parallel/tensor_parallel.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <set>

#include "tutti/codegen/blocks/block_product.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/core/block_format.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/core/tree_cut.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/linear_operand.h"
#include "tutti/nn/module_call.h"
#include "tutti/parallel/divided_codes.h"
#include "tutti/parallel/divided_values.h"
#include "tutti/parallel/loss_parallel.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/numerics.h"

namespace tutti::parallel {
namespace {

bool matches(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*') return !name.empty() && name[0] == pattern[0] && matches(pattern.substr(1), name.substr(1));
  for (size_t n = 0;; ++n) {
    if (matches(pattern.substr(1), name.substr(n))) return true;
    if (n == name.size() || name[n] == '.') return false;
  }
}

struct Styled {
  std::string name;
  nn::Module* module;
  const ParallelStyle* style;
};

std::vector<Styled> styled_modules(nn::Module& module, const ParallelPlan& plan) {
  std::vector<Styled> result;
  const std::vector<nn::NamedModule> modules = module.named_modules();
  for (const PlanEntry& entry : plan) {
    const size_t before = result.size();
    for (const nn::NamedModule& m : modules) {
      if (matches(entry.pattern, m.name)) result.push_back({m.name, m.module, &entry.style});
    }
    if (result.size() > before) continue;
    std::vector<std::string> names;
    for (const nn::NamedModule& m : modules) {
      if (!m.name.empty()) names.push_back(m.name);
    }
    throw UsageError("parallelize_module: " + unknown_name_message("module pattern", entry.pattern, names));
  }
  return result;
}

// How a style places the parameters of a module, and the sum that this cuts.
struct Division {
  struct Placed {
    nn::Parameter parameter;
    Placement placement;
  };
  std::vector<Placed> parameters = {};
  int64_t summed = 0;  // elements of a contraction that is cut; 0: none
  const char* what = "";
};

// Whether so many ranks can divide each row of quantized blocks at borders of the tree that its product is (numerics
// contract, N12), with equally many blocks on each.
bool cuts_rows_of_blocks(const nn::Parameter& weight, int64_t ranks) {
  const int64_t blocks = weight.sizes()[1] / row_of(weight.block_format()).elements;
  return std::has_single_bit(static_cast<uint64_t>(ranks)) && blocks % ranks == 0 &&
         ranks <= largest_cut(blocks, codegen::kBlockLeaf);
}

// Quantized blocks have no gradient, so that output features and rows of tables may be cut anywhere. Where input
// features cannot be, output features are.
Placement placement_of_blocks(const nn::Parameter& weight, bool by_inputs, int64_t ranks) {
  return dist::shard(by_inputs && cuts_rows_of_blocks(weight, ranks) ? 1 : 0);
}

bool holds_codes(const nn::Module& module) {
  const auto* linear = dynamic_cast<const nn::Linear*>(&module);
  return linear != nullptr && nn::coded_operand_of(*linear) != nullptr;
}

bool divides_features(const ParallelStyle& style) {
  return std::holds_alternative<ColwiseParallel>(style) || std::holds_alternative<RowwiseParallel>(style);
}

// `ranks` matter to quantized blocks only.
Division division_of(const Styled& s, int64_t ranks = 1) {
  const bool colwise = std::holds_alternative<ColwiseParallel>(*s.style),
             rowwise = std::holds_alternative<RowwiseParallel>(*s.style);
  if (!colwise && !rowwise) return {};
  if (auto* linear = dynamic_cast<nn::Linear*>(s.module)) {
    if (nn::coded_operand_of(*linear) != nullptr) {
      // Codes are divided by output features (divided_codes.h).
      if (!linear->bias.defined()) return {};
      return {.parameters = {{linear->bias, colwise ? dist::shard(0) : dist::replicate()}}};
    }
    TUTTI_CHECK(dynamic_cast<const nn::DenseOperand*>(&linear->operand()) != nullptr,
                "parallelize_module: the weight of '{}' is {}; {} divides dense ones", s.name, linear->operand().kind(),
                name_of(*s.style));
    Division d;
    const bool is_quantized = linear->weight.holds_blocks();
    d.parameters.push_back({linear->weight, is_quantized ? placement_of_blocks(linear->weight, rowwise, ranks)
                                                         : dist::shard(colwise ? 0 : 1)});
    if (linear->bias.defined()) d.parameters.push_back({linear->bias, colwise ? dist::shard(0) : dist::replicate()});
    if (is_quantized) return d;
    d.summed = linear->weight.sizes()[colwise ? 0 : 1];
    d.what = colwise ? "output features, over which the gradient of its input is summed"
                     : "input features, over which its result is summed";
    return d;
  }
  if (auto* table = dynamic_cast<nn::Embedding*>(s.module)) {
    TUTTI_CHECK(!table->is_sparse(),
                "parallelize_module: '{}' is an Embedding with sparse gradients, which distributed tensors do not "
                "have; make it without EmbeddingOptions::sparse",
                s.name);
    return {.parameters = {{table->weight, dist::shard(colwise && !table->weight.holds_blocks() ? 1 : 0)}}};
  }
  throw UsageError(
      fmt::format("parallelize_module: {} divides nn::Linear and nn::Embedding, and '{}' is neither; name the modules "
                  "inside it, or use SequenceParallel or PrepareModuleInput",
                  name_of(*s.style), s.name));
}

int64_t largest_degree(const std::vector<Styled>& styled) {
  int64_t largest = std::numeric_limits<int64_t>::max() / 2 + 1;
  for (const Styled& s : styled) {
    const Division d = division_of(s);
    if (d.summed > 0) largest = std::min(largest, largest_cut(d.summed, codegen::contraction_leaf()));
  }
  return largest;
}

// The placements of parameters by identity. UsageError where the numbers of ranks or two styles do not fit.
std::map<const void*, Placement> placements_of_plan(const std::vector<Styled>& styled, int64_t ranks) {
  struct By {
    Placement placement;
    std::string name;
  };
  std::map<const void*, By> placed;
  for (const Styled& s : styled) {
    const Division d = division_of(s, ranks);
    const bool is_legal = d.summed == 0 || (std::has_single_bit(static_cast<uint64_t>(ranks)) &&
                                            ranks <= largest_cut(d.summed, codegen::contraction_leaf()));
    TUTTI_CHECK(is_legal || numerics_mode() == NumericsMode::fast,
                "parallelize_module: {} of '{}' cuts its {} {}, over {} ranks; that sum is a tree with leaves of {}, "
                "which can be cut over powers of two up to {}. The largest legal degree "
                "of the whole plan is {}; divide the other ranks over data, or use fast numerics",
                name_of(*s.style), s.name, d.summed, d.what, ranks, codegen::contraction_leaf(),
                largest_cut(d.summed, codegen::contraction_leaf()), largest_degree(styled));
    for (const Division::Placed& p : d.parameters) {
      const auto [it, is_new] = placed.try_emplace(p.parameter.identity(), By{p.placement, s.name});
      TUTTI_CHECK(is_new || it->second.placement == p.placement,
                  "parallelize_module: the plan places one parameter as {} in '{}' and as {} in '{}'; give both "
                  "modules styles that agree",
                  tutti::to_string(it->second.placement), it->second.name, tutti::to_string(p.placement), s.name);
    }
  }
  std::map<const void*, Placement> result;
  for (const auto& [identity, by] : placed) result[identity] = by.placement;
  return result;
}

// UsageError on all ranks where they would divide the module in different ways: their first collective would be the one
// that finds it, or none.
void check_same_plans(const std::vector<Styled>& styled, const nn::Module& module,
                      const std::map<const void*, Placement>& placements, const dist::Mesh& mesh) {
  uint64_t key = 1;
  const auto note = [&](const std::string& text) { key = hash64(text, key); };
  for (const Styled& s : styled) {
    const auto* linear = dynamic_cast<nn::Linear*>(s.module);
    note(fmt::format("{} is {} {}", s.name, name_of(*s.style), linear == nullptr ? "" : linear->operand().kind()));
  }
  for (const auto& [name, parameter] : module.named_parameters()) {
    const auto it = placements.find(parameter.identity());
    note(fmt::format("{} {} {} {}", name, parameter.sizes(),
                     it == placements.end() ? "R" : tutti::to_string(it->second),
                     parameter.holds_blocks() ? tutti::name_of(parameter.block_format()) : ""));
  }
  try {
    mesh->group()->barrier({.agreement = key});
  } catch (const UsageError& error) {
    throw UsageError(fmt::format(
        "parallelize_module: the ranks of {} have different plans or modules; give all of them the same: {}",
        mesh->to_string(), error.what()));
  }
}

// ---- moving activations ---------------------------------------------------------------------------------------------

Tensor moved(const Tensor& t, const dist::Mesh& mesh, const std::optional<Placement>& as_is,
             const std::optional<Placement>& wanted) {
  Tensor placed = t;
  if (!dist::is_dtensor(t)) {
    if (!as_is) return t;
    placed = dist::from_local(t, mesh, {*as_is});
  }
  return wanted ? dist::redistribute(placed, {*wanted}) : placed;
}

Tensor given(const Tensor& t, bool as_part) { return as_part ? dist::to_local(t) : t; }

void hook_input(nn::Module& module, const dist::Mesh& mesh, const PrepareModuleInput& prepare,
                const std::string& name) {
  module.forward_hooks().before([=](const nn::Module&, std::vector<Tensor>& inputs) {
    const size_t named = std::max(prepare.input_layouts.size(), prepare.desired_input_layouts.size());
    TUTTI_CHECK(named <= inputs.size(), "the plan of '{}' places {} inputs, and its forward was called with {} tensors",
                name, named, inputs.size());
    const auto at = [](const std::vector<std::optional<Placement>>& layouts, size_t i) {
      return i < layouts.size() ? layouts[i] : std::nullopt;
    };
    for (size_t i = 0; i < named; ++i) {
      if (!inputs[i].defined()) continue;
      inputs[i] = moved(inputs[i], mesh, at(prepare.input_layouts, i), at(prepare.desired_input_layouts, i));
      if (prepare.use_local_output && dist::is_dtensor(inputs[i])) inputs[i] = dist::to_local(inputs[i]);
    }
  });
}

void hook_output(nn::Module& module, const dist::Mesh& mesh, const PrepareModuleOutput& prepare) {
  module.forward_hooks().after([=](const nn::Module&, const Tensor& output) {
    const Tensor placed = moved(output, mesh, prepare.output_layouts, prepare.desired_output_layouts);
    return given(placed, prepare.use_local_output && dist::is_dtensor(placed));
  });
}

struct Hooks {
  const Styled& s;
  const dist::Mesh& mesh;

  void operator()(const ColwiseParallel& style) const {
    hook_input(*s.module, mesh, {.input_layouts = {style.input_layouts}, .desired_input_layouts = {dist::replicate()}},
               s.name);
    hook_output(*s.module, mesh,
                {.desired_output_layouts = style.output_layouts, .use_local_output = style.use_local_output});
  }
  void operator()(const RowwiseParallel& style) const {
    const bool is_table = dynamic_cast<nn::Embedding*>(s.module) != nullptr;
    const Placement given = is_table ? dist::replicate() : dist::shard(-1);
    const bool takes_whole =
        holds_codes(*s.module) || division_of(s, mesh->size()).parameters[0].placement == dist::shard(0);
    hook_input(*s.module, mesh,
               {.input_layouts = {style.input_layouts.value_or(given)},
                .desired_input_layouts = {takes_whole ? dist::replicate() : dist::shard(-1)}},
               s.name);
    hook_output(*s.module, mesh,
                {.desired_output_layouts = style.output_layouts, .use_local_output = style.use_local_output});
  }
  void operator()(const SequenceParallel& style) const {
    const Placement cut = dist::shard(style.sequence_dim);
    hook_input(*s.module, mesh, {.input_layouts = {cut}, .desired_input_layouts = {cut}}, s.name);
    hook_output(*s.module, mesh, {.desired_output_layouts = cut, .use_local_output = style.use_local_output});
  }
  void operator()(const PrepareModuleInput& style) const { hook_input(*s.module, mesh, style, s.name); }
  void operator()(const PrepareModuleOutput& style) const { hook_output(*s.module, mesh, style); }
  void operator()(const PrepareModuleInputOutput& style) const {
    hook_input(*s.module, mesh, style.input, s.name);
    hook_output(*s.module, mesh, style.output);
  }
};

}  // namespace

std::string_view name_of(const ParallelStyle& style) {
  constexpr std::string_view names[] = {"ColwiseParallel",    "RowwiseParallel",     "SequenceParallel",
                                        "PrepareModuleInput", "PrepareModuleOutput", "PrepareModuleInputOutput"};
  return names[style.index()];
}

void parallelize_module(nn::Module& module, const dist::Mesh& mesh, const ParallelPlan& plan) {
  TUTTI_CHECK(mesh->ndim() == 1, "parallelize_module: {} has {} dims; expected one, take mesh->slice({{\"tp\"}})",
              mesh->to_string(), mesh->ndim());
  TUTTI_CHECK(mesh->has_coordinate(), "parallelize_module: rank {} is not in {}; call it on the ranks of the mesh only",
              mesh->rank(), mesh->to_string());
  const std::vector<Styled> styled = styled_modules(module, plan);
  const std::map<const void*, Placement> placements = placements_of_plan(styled, mesh->size());
  check_same_plans(styled, module, placements, mesh);
  const MemoryCategoryScope category(MemoryCategory::parameters);
  std::vector<std::pair<nn::Linear*, nn::WeightCodes>> coded;
  std::set<const void*> given_up;  // weights of layers that are held as codes
  for (const nn::NamedModule& m : module.named_modules()) {
    if (!holds_codes(*m.module)) continue;
    auto& layer = dynamic_cast<nn::Linear&>(*m.module);
    const bool by_rows = std::any_of(styled.begin(), styled.end(), [&](const Styled& s) {
      return s.module == m.module && divides_features(*s.style);
    });
    coded.emplace_back(&layer, divided_codes(layer, mesh, by_rows));
    given_up.insert(layer.weight.identity());
  }
  std::vector<std::pair<nn::Parameter, Tensor>> divided;
  for (const auto& [name, parameter] : module.named_parameters()) {
    if (given_up.contains(parameter.identity())) continue;
    const auto it = placements.find(parameter.identity());
    const dist::Placements here{it == placements.end() ? dist::replicate() : it->second};
    if (parameter.is_materialized()) {
      const Tensor held = parameter.holds_blocks() ? parameter.blocks() : parameter.master();
      if (it == placements.end() && dist::is_dtensor(held)) continue;
      TUTTI_CHECK(!dist::is_dtensor(held),
                  "parallelize_module: parameter '{}' is {} already; its values must be in one tensor", name,
                  describe(held));
    }
    divided.emplace_back(parameter, divided_values(parameter, mesh, here));
  }
  enable_loss_parallel();
  for (const auto& [parameter, values] : divided) hold_divided(parameter, values);
  for (const auto& [layer, codes] : coded) nn::coded_operand_of(*layer)->set(codes);
  for (const auto& [name, buffer, persistent] : module.named_buffers())
    buffer.set(dist::distribute_tensor(buffer.use(), mesh, {}, {.src_data_rank = -1}));
  for (const Styled& s : styled) std::visit(Hooks{s, mesh}, *s.style);
}

void parallelize_module(nn::Module& module, const dist::Mesh& mesh, const ParallelStyle& style) {
  parallelize_module(module, mesh, ParallelPlan{{"", style}});
}

int64_t largest_parallel_degree(nn::Module& module, const ParallelPlan& plan) {
  return largest_degree(styled_modules(module, plan));
}

}  // namespace tutti::parallel
