#include "tutti/dist/explain.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/core/number.h"

namespace tutti::dist {
namespace {

constexpr int64_t kMostExplained = 4096;  // ranks

// exact, tree or close: what a choice of rows does to the bits (numerics contract, N9).
std::string_view exactness(const Candidate& c) {
  bool is_tree = false;
  for (const ShardingRow* row : c.rows) {
    if (row->exact) continue;
    if (row->tree_factor == 0) return "close";
    is_tree = true;
  }
  return is_tree ? "tree" : "exact";
}

std::string layouts(const std::vector<const DTensorSpec*>& specs) {
  std::string text;
  for (const DTensorSpec* spec : specs) text += (text.empty() ? "" : " ") + to_string(spec->placements());
  return text;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// The parts between commas that stand in no inner bracket.
std::vector<std::string_view> split_list(std::string_view text) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  int depth = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '(') ++depth;
    if (i < text.size() && text[i] == ')') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    if (const std::string_view part = trimmed(text.substr(begin, i - begin)); !part.empty()) parts.push_back(part);
    begin = i + 1;
  }
  return parts;
}

}  // namespace

std::string explain_sharding(const OpCall& call, const std::vector<const DTensorSpec*>& inputs, const CostModel& cost,
                             bool strict) {
  OutputMetas metas;
  call.op.infer(call, metas);
  const LayoutQuery query{.call = call,
                          .inputs = inputs,
                          .outputs = {metas.meta, metas.meta + metas.count},
                          .strict = strict,
                          .cost = cost};
  const Candidates candidates = choose_layout(query);
  std::string text = fmt::format("{}\n", call.op.name);
  for (size_t i = 0; i < inputs.size(); ++i) text += fmt::format("  input {}: {}\n", i, inputs[i]->to_string());
  text += fmt::format("  rule: {}\n  costs: {}\n", candidates.rule, cost.to_string());
  if (candidates.chosen < 0) {
    text += "no row can be taken\n";
  } else {
    const Candidate& c = candidates.all[static_cast<size_t>(candidates.chosen)];
    text += fmt::format("chosen: {} ({}), {} -> {}\n", c.name(), exactness(c), layouts(c.inputs), layouts(c.outputs));
    text += fmt::format("  {} collectives, {:.0f} bytes a rank\n", c.collectives, c.bytes);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (c.inputs[i] == inputs[i]) continue;
      std::string plan = plan_redistribution(*inputs[i], *c.inputs[i], cost).to_string();
      for (size_t at = 0; (at = plan.find('\n', at)) != std::string::npos; at += 3) plan.replace(at, 1, "\n  ");
      text += fmt::format("  input {}: {}\n", i, plan);
    }
  }
  std::vector<const Candidate*> others;
  for (size_t k = 0; k < candidates.all.size(); ++k) {
    if (static_cast<int>(k) != candidates.chosen) others.push_back(&candidates.all[k]);
  }
  std::stable_sort(others.begin(), others.end(), [](const Candidate* a, const Candidate* b) {
    return std::tuple(!a->refusal.empty(), a->cost) < std::tuple(!b->refusal.empty(), b->cost);
  });
  for (const Candidate* c : others) {
    if (c->refusal.empty())
      text += fmt::format("also legal: {} ({}), {} -> {}: {} collectives, {:.0f} bytes\n", c->name(), exactness(*c),
                          layouts(c->inputs), layouts(c->outputs), c->collectives, c->bytes);
    else text += fmt::format("rejected: {}: {}\n", c->name(), c->refusal);
  }
  return text;
}

namespace {

class NoElements final : public StoragePlaceholder {
 public:
  NoElements() : StoragePlaceholder(StorageState::sharded) {}
  [[noreturn]] void refuse_data() const override {
    throw UsageError("explain sharding: the rule of this op reads elements, and a question has none");
  }
};

Tensor tensor_of(const DTensorSpec& spec) {
  const int64_t bytes = checked_mul(numel_of(spec.sizes()), itemsize(spec.dtype()));
  return Tensor::over(StorageRef::adopt(Storage::without_memory(bytes, kCpu, std::make_unique<NoElements>())),
                      spec.sizes(), contiguous_strides(spec.sizes()), 0, spec.dtype());
}

}  // namespace

std::string explain_sharding(const ShardingQuestion& question) {
  const OpDef& op = find_op(question.op);
  TUTTI_CHECK(!question.mesh.empty(), "explain sharding: the mesh has no dims; write 4 or 2x2");
  int64_t all = 1;
  for (const int64_t ranks : question.mesh) {
    TUTTI_CHECK(ranks >= 1, "explain sharding: a mesh dim of {} ranks; each has at least one", ranks);
    TUTTI_CHECK(ranks <= kMostExplained / all,
                "explain sharding: the mesh has more than {} ranks, and each is looked at; ask about a smaller one",
                kMostExplained);
    all *= ranks;
  }
  const std::vector<std::string> transports = priced_transports();
  TUTTI_CHECK(std::find(transports.begin(), transports.end(), question.transport) != transports.end(),
              "explain sharding: {}", unknown_name_message("transport", question.transport, transports));
  TUTTI_CHECK(op.num_inputs < 0 || op.num_inputs == static_cast<int>(question.inputs.size()),
              "explain sharding: {} takes {} tensors, and {} are given", op.name, op.num_inputs,
              question.inputs.size());
  TUTTI_CHECK(!question.inputs.empty(), "explain sharding: {} is asked about without tensors; give the layout of each",
              op.name);
  std::vector<const DTensorSpec*> specs;
  std::vector<Tensor> tensors;
  for (const std::string& text : question.inputs) {
    specs.push_back(&spec_from_text(text, question.mesh));
    tensors.push_back(tensor_of(*specs.back()));
  }
  Attrs attrs;
  if (op.samples != nullptr) {
    const std::vector<Sample> samples = op.samples();
    if (!samples.empty()) attrs = samples[0].attrs;
  }
  if (!question.attrs.empty()) {
    TUTTI_CHECK(!attrs.empty(), "explain sharding: {} has no attrs", op.name);
    attrs = Attrs::from_text(*attrs.type(), question.attrs, op.name);
  }
  CostModel cost = cost_model(question.transport);
  if (!question.costs.empty())
    cost.measured = std::make_shared<const MeasuredCosts>(MeasuredCosts::read(question.costs));
  std::string text = explain_sharding({op, tensors, attrs}, specs, cost, question.strict);
  if (!attrs.empty())
    text += fmt::format("attrs: {}{}\n", attrs.to_string(),
                        question.attrs.empty() ? " (those of the op's first sample; --attrs gives others)" : "");
  return text;
}

const DTensorSpec& spec_from_text(std::string_view text, const std::vector<int64_t>& mesh_shape) {
  const auto refuse = [&](const char* what) {
    throw UsageError(
        fmt::format("tensor '{}': {}; write DTYPE[SIZES]@[PLACEMENTS], as in f32[8,4]@[S(0),R]", text, what));
  };
  const size_t open = text.find('['), close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open ||
      text.substr(0, open).find('@') != std::string_view::npos)
    refuse("there are no sizes");
  SpecFields fields{.mesh_id = 0, .mesh_shape = mesh_shape, .placements = {}, .sizes = {}};
  if (open > 0) fields.dtype = dtype_from_name(std::string(trimmed(text.substr(0, open))));
  for (const std::string_view part : split_list(text.substr(open + 1, close - open - 1))) {
    int64_t size = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
    if (error != std::errc{} || end != part.data() + part.size() || size < 0) refuse("a size is no number");
    fields.sizes.push_back(size);
  }
  const std::string_view rest = trimmed(text.substr(close + 1));
  if (rest.size() < 3 || rest.substr(0, 2) != "@[" || rest.back() != ']') refuse("there are no placements");
  for (const std::string_view part : split_list(rest.substr(2, rest.size() - 3)))
    fields.placements.push_back(placement_from_text(part));
  return DTensorSpec::of(std::move(fields), "tensor");
}

}  // namespace tutti::dist
