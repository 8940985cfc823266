// Every row of every sharding rule, with the real kernels: inputs lie as the row says, the op runs through the stage,
// and in strict mode its results have the bits of one rank, whatever row the stage took. Sums are cut too, because
// leaves are lowered.
#include <atomic>
#include <cstdio>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tests/support/shard_parts.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/core/sharding_rule.h"
#include "tutti/dist/stage.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/runtime/numerics.h"

namespace tutti::dist {
namespace {

bool is_small(const OpDef& op, const Sample& sample) {
  int64_t elements = 0;
  for (const Tensor& t : sample.inputs) elements += t.numel();
  return !sample.inputs.empty() && elements <= 3000 && cost_of({op, sample.inputs, sample.attrs}).flops <= 100000;
}

std::vector<const OpDef*> ops_with_rules() {
  std::vector<const OpDef*> result;
  for (const OpDef* op : op_table()) {
    if (op->sharding != nullptr && op->samples != nullptr && op->num_inputs != 0 && !op->resizes &&
        op->becomes[0] < 0 && !op->ordered)
      result.push_back(op);
  }
  return result;
}

std::vector<const OpDef*> ops_with_gradients() {
  std::vector<const OpDef*> result;
  for (const OpDef* op : ops_with_rules()) {
    const bool writes = std::any_of(std::begin(op->writes), std::end(op->writes), [](int8_t w) { return w >= 0; });
    if (op->gradient.vjp != nullptr && !writes) result.push_back(op);
  }
  return result;
}

// Rows about terms are for values that terms can express.
bool is_testable(const ShardingRow& row, const Sample& sample) {
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    if (!row.inputs[i].is_partial()) continue;
    const DType dtype = sample.inputs[i].dtype();
    if (!is_floating(dtype) || is_fp8(dtype) || row.inputs[i].op() == PartialOp::prod ||
        row.inputs[i].op() == PartialOp::avg)
      return false;
    if (sample.inputs[i].numel() == 0 || testing::has_nan(sample.inputs[i])) return false;
  }
  return true;
}

struct Report {
  int rows = 0, refused = 0;
};

class Validator {
 public:
  Validator(const OpDef& op, const Sample& sample)
      : op_(op), sample_(sample), rule_(op.sharding({op, sample.inputs, sample.attrs})) {
    OutputMetas metas;
    op.infer({op, sample.inputs, sample.attrs}, metas);
    std::vector<Extents> outputs;
    for (int k = 0; k < metas.count; ++k) outputs.push_back(concrete(metas.meta[k].sizes));
    for (const Tensor& t : sample.inputs) sizes_.push_back(t.extents());
    rows_ = ShardingRule::parse(rule_).rows(sizes_, outputs);
  }

  void check(const Mesh& mesh, Report& report) const {
    for (size_t a = 0; a < rows_.size(); ++a) {
      for (size_t b = 0; b < (mesh->ndim() == 2 ? rows_.size() : 1); ++b) {
        std::vector<const ShardingRow*> rows{&rows_[a]};
        if (mesh->ndim() == 2) rows.push_back(&rows_[b]);
        for (const Cut cut : {Cut::halving, Cut::chunk}) check_rows(mesh, rows, cut, report);
      }
    }
  }

  // With every row that has no terms: of all float inputs, from cotangents that are replicated.
  void check_gradients(const Mesh& mesh) const {
    const std::vector<Tensor> plain = gradients(sample_.inputs, [](const Tensor& t) { return t; });
    for (const ShardingRow& row : rows_) {
      const auto is_term = [](const Placement& p) { return p.is_partial(); };
      if (std::any_of(row.inputs.begin(), row.inputs.end(), is_term)) continue;
      std::vector<Tensor> inputs;
      for (size_t i = 0; i < sample_.inputs.size(); ++i)
        inputs.push_back(distribute_tensor(sample_.inputs[i], mesh, {row.inputs[i]}, {.src_data_rank = -1}));
      const std::string about = fmt::format("{} / {}, rule {}, row {}, rank {} of {}", op_.name, sample_.name, rule_,
                                            row.name, mesh->rank(), mesh->to_string());
      std::vector<Tensor> grads;
      try {
        grads =
            gradients(inputs, [&](const Tensor& t) { return distribute_tensor(t, mesh, {}, {.src_data_rank = -1}); });
      } catch (const std::exception& error) {
        throw std::logic_error(about + ": " + error.what());
      }
      for (size_t i = 0; i < grads.size(); ++i) {
        if (grads[i].defined() != plain[i].defined()) throw std::logic_error(about + ": a gradient is missing");
        if (!grads[i].defined()) continue;
        if (!(placements_of(grads[i]) == placements_of(inputs[i])))
          throw std::logic_error(about + ": a gradient lies as " + to_string(placements_of(grads[i])));
        require_none(difference(full_tensor(grads[i]), plain[i]), fmt::format("gradient {} of {}", i, about));
      }
    }
  }

 private:
  // Statistics among the outputs may have none.
  bool has_gradient(size_t k) const {
    std::vector<Tensor> leaves;
    for (const Tensor& t : sample_.inputs)
      leaves.push_back(is_floating(t.dtype()) && !is_fp8(t.dtype()) ? requires_grad_(clone(t)) : t);
    std::vector<Tensor> outputs(static_cast<size_t>(op_.num_outputs));
    apply(op_, leaves, sample_.attrs, outputs);
    try {
      if (requires_grad(outputs[k])) backward(outputs[k], full_like(outputs[k], 1.0));
    } catch (const UsageError&) {
      return false;
    }
    return true;
  }

  template <class Place>
  std::vector<Tensor> gradients(const std::vector<Tensor>& inputs, const Place& place) const {
    std::vector<Tensor> leaves;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool wants = is_floating(inputs[i].dtype()) && !is_fp8(inputs[i].dtype()) &&
                         !(op_.gradient.constant_inputs >> std::min<size_t>(i, 31) & 1);
      const Tensor own = is_dtensor(inputs[i]) ? redistribute(inputs[i], placements_of(inputs[i])) : clone(inputs[i]);
      leaves.push_back(wants ? requires_grad_(own.alias()) : own);
    }
    std::vector<Tensor> outputs(static_cast<size_t>(op_.num_outputs));
    apply(op_, leaves, sample_.attrs, outputs);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!requires_grad(outputs[k]) || !has_gradient(k)) continue;
      backward(outputs[k], place(facets::sample_tensor(40 + k, outputs[k].extents(), outputs[k].dtype(), -1.0, 1.0)),
               {.retain_graph = true});
    }
    std::vector<Tensor> grads;
    for (const Tensor& leaf : leaves) grads.push_back(grad_of(leaf));
    return grads;
  }

  std::vector<Tensor> run(std::vector<Tensor> inputs) const {
    for (const int8_t written : op_.writes) {
      if (written >= 0)
        inputs[static_cast<size_t>(written)] = is_dtensor(inputs[static_cast<size_t>(written)])
                                                   ? inputs[static_cast<size_t>(written)]
                                                   : clone(inputs[static_cast<size_t>(written)]);
    }
    std::vector<Tensor> outputs(static_cast<size_t>(op_.num_outputs));
    apply(op_, inputs, sample_.attrs, outputs);
    return outputs;
  }

  // The input as the rows place it, and the value that it has then.
  static Tensor placed(const Tensor& whole, const Mesh& mesh, const Placements& placements, Cut cut, uint64_t seed,
                       Tensor& value) {
    value = whole;
    Placements resolved = placements;
    bool has_terms = false;
    for (Placement& p : resolved) {
      has_terms = has_terms || p.is_partial();
      if (p.is_partial()) p = replicate();
    }
    if (!has_terms) return distribute_tensor(whole, mesh, placements, {.layout = {.cut = cut}, .src_data_rank = -1});
    const PartialOp op = [&] {
      for (const Placement& p : placements) {
        if (p.is_partial()) return p.op();
      }
      return PartialOp::sum;
    }();
    // Terms of their own on every rank of the axes that are Partial; the whole is what they combine to.
    int64_t terms = 1, mine = 0;
    for (size_t axis = 0; axis < placements.size(); ++axis) {
      if (!placements[axis].is_partial()) continue;
      terms *= mesh->size(static_cast<int64_t>(axis));
      mine = mine * mesh->size(static_cast<int64_t>(axis)) + mesh->coordinate()[axis];
    }
    const std::vector<Tensor> all = testing::split_in_terms(whole, op, static_cast<int>(terms), seed);
    const Tensor own = distribute_tensor(all[static_cast<size_t>(mine)], mesh, resolved,
                                         {.layout = {.cut = cut}, .src_data_rank = -1});
    const Tensor t = from_local(to_local(own), mesh, placements, {.layout = {.cut = cut}, .sizes = whole.extents()});
    value = full_tensor(t);
    return t;
  }

  void check_rows(const Mesh& mesh, const std::vector<const ShardingRow*>& rows, Cut cut, Report& report) const {
    for (const ShardingRow* row : rows) {
      if (!is_testable(*row, sample_)) return;
    }
    std::vector<Tensor> inputs, whole;
    std::string layout;
    try {
      for (size_t i = 0; i < sample_.inputs.size(); ++i) {
        Placements placements;
        for (const ShardingRow* row : rows) placements.push_back(row->inputs[i]);
        Tensor value;
        inputs.push_back(placed(sample_.inputs[i], mesh, placements, cut, 100 + i, value));
        whole.push_back(value);
        layout += " " + spec_of(inputs.back()).to_string();
      }
    } catch (const UsageError&) {
      return;  // two kinds of terms, or pieces that do not divide
    }
    std::vector<Tensor> results;
    try {
      results = run(inputs);
    } catch (const UsageError& error) {
      // What is written in place cannot move.
      if (std::string(error.what()).find("in place") == std::string::npos)
        throw std::logic_error(
            fmt::format("{} / {}, rule {}:{}: {}", op_.name, sample_.name, rule_, layout, error.what()));
      ++report.refused;
      return;
    }
    const std::vector<Tensor> expected = run(whole);
    ++report.rows;
    for (size_t k = 0; k < results.size(); ++k) {
      require_none(difference(full_tensor(results[k]), expected[k]),
                   fmt::format("{} / {}, rule {}, output {}, rank {} of {}:{} gave {}", op_.name, sample_.name, rule_,
                               k, mesh->rank(), mesh->to_string(), layout, spec_of(results[k]).to_string()));
    }
  }

  const OpDef& op_;
  const Sample& sample_;
  const std::string rule_;
  std::vector<Extents> sizes_;
  std::vector<ShardingRow> rows_;
};

// Says at the end how many rows all tests together have checked.
std::atomic<int> rows_checked{0};
class Summary final : public ::testing::Environment {
  void TearDown() override {
    if (rows_checked > 0) std::printf("%d combinations of rows were checked on one rank each\n", rows_checked.load());
  }
};
[[maybe_unused]] ::testing::Environment* const summary = ::testing::AddGlobalTestEnvironment(new Summary);

class DispatchContract : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, DispatchContract, ::testing::ValuesIn(ops_with_rules()),
                         [](const auto& info) { return std::string(info.param->name); });

class GradientContract : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, GradientContract, ::testing::ValuesIn(ops_with_gradients()),
                         [](const auto& info) { return std::string(info.param->name); });

// The gradients of what the autograd stage records over distributed tensors are those of one rank, bit by bit, and lie
// as their leaves.
TEST_P(GradientContract, GradientsHaveTheBitsOfOneRank) {
  const codegen::ContractionLeafForTests leaf(2);
  const OpDef& op = *GetParam();
  const std::vector<Sample> samples = op.samples();
  for (const int ranks : {2, 3}) {
    on_mesh({ranks}, [&](const Mesh& mesh) {
      int count = 0;
      for (const Sample& sample : samples) {
        if (!is_small(op, sample) || ++count > 4) continue;
        Validator(op, sample).check_gradients(mesh);
      }
    });
  }
}

TEST_P(DispatchContract, EveryRowGivesTheBitsOfOneRank) {
  const codegen::ContractionLeafForTests leaf(2);
  const OpDef& op = *GetParam();
  const std::vector<Sample> samples = op.samples();
  int rows = 0;
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2}, std::vector<int64_t>{3}, std::vector<int64_t>{4}, std::vector<int64_t>{2, 2}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      Report report;
      int pairs = 0;
      for (const Sample& sample : samples) {
        // Pairs of rows on two axes for the first samples of an op.
        if (!is_small(op, sample) || (shape.size() == 2 && ++pairs > 2)) continue;
        Validator(op, sample).check(mesh, report);
      }
      if (mesh->rank() == 0) rows += report.rows, rows_checked += report.rows;
    });
  }
  EXPECT_GT(rows, 0) << op.name;
}

}  // namespace
}  // namespace tutti::dist
