// Every row of every sharding rule, with the real kernels: inputs lie as the row says, the op runs through the stage, and in strict mode
// its results have the bits of one rank, whatever row the stage took. Sums are cut too, because leaves are lowered.
#include "tests/dist/support/mesh_ranks.h"
#include "tests/support/shard_parts.h"
#include "tutti/codegen/contraction_tree.h"
#include "tutti/core/sharding_rule.h"
#include "tutti/dist/stage.h"
#include "tutti/ops/copy.h"
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
    if (op->sharding != nullptr && op->samples != nullptr && op->num_inputs != 0 && !op->resizes && op->becomes[0] < 0 && !op->ordered) result.push_back(op);
  }
  return result;
}

// Rows about terms are for values that terms can express.
bool is_testable(const ShardingRow& row, const Sample& sample) {
  for (size_t i = 0; i < row.inputs.size(); ++i) {
    if (!row.inputs[i].is_partial()) continue;
    const DType dtype = sample.inputs[i].dtype();
    if (!is_floating(dtype) || is_fp8(dtype) || row.inputs[i].op() == PartialOp::prod || row.inputs[i].op() == PartialOp::avg) return false;
    if (sample.inputs[i].numel() == 0 || testing::has_nan(sample.inputs[i])) return false;
  }
  return true;
}

struct Report {
  int rows = 0, refused = 0;
};

class Validator {
 public:
  Validator(const OpDef& op, const Sample& sample) : op_(op), sample_(sample), rule_(op.sharding({op, sample.inputs, sample.attrs})) {
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

 private:
  std::vector<Tensor> run(std::vector<Tensor> inputs) const {
    for (const int8_t written : op_.writes) {
      if (written >= 0) inputs[static_cast<size_t>(written)] = is_dtensor(inputs[static_cast<size_t>(written)]) ? inputs[static_cast<size_t>(written)] : clone(inputs[static_cast<size_t>(written)]);
    }
    std::vector<Tensor> outputs(static_cast<size_t>(op_.num_outputs));
    apply(op_, inputs, sample_.attrs, outputs);
    return outputs;
  }

  // The input as the rows place it, and the value that it has then.
  static Tensor placed(const Tensor& whole, const Mesh& mesh, const Placements& placements, Cut cut, uint64_t seed, Tensor& value) {
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
    const Tensor own = distribute_tensor(all[static_cast<size_t>(mine)], mesh, resolved, {.layout = {.cut = cut}, .src_data_rank = -1});
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
      ASSERT_NE(std::string(error.what()).find("in place"), std::string::npos) << op_.name << " / " << sample_.name << layout << ": " << error.what();
      ++report.refused;
      return;
    }
    const std::vector<Tensor> expected = run(whole);
    ++report.rows;
    for (size_t k = 0; k < results.size(); ++k) {
      ASSERT_EQ(difference(full_tensor(results[k]), expected[k]), "")
          << op_.name << " / " << sample_.name << ", rule " << rule_ << ", output " << k << ", rank " << mesh->rank() << " of " << mesh->to_string() << ":" << layout << " gave "
          << spec_of(results[k]).to_string();
    }
  }

  const OpDef& op_;
  const Sample& sample_;
  const std::string rule_;
  std::vector<Extents> sizes_;
  std::vector<ShardingRow> rows_;
};

class DispatchContract : public ::testing::TestWithParam<const OpDef*> {};
INSTANTIATE_TEST_SUITE_P(EveryOp, DispatchContract, ::testing::ValuesIn(ops_with_rules()), [](const auto& info) { return std::string(info.param->name); });

TEST_P(DispatchContract, EveryRowGivesTheBitsOfOneRank) {
  const codegen::ContractionLeafForTests leaf(2);
  const OpDef& op = *GetParam();
  const std::vector<Sample> samples = op.samples();
  int rows = 0;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2}, std::vector<int64_t>{3}, std::vector<int64_t>{4}, std::vector<int64_t>{2, 2}}) {
    on_mesh(shape, [&](const Mesh& mesh) {
      Report report;
      int pairs = 0;
      for (const Sample& sample : samples) {
        // Pairs of rows on two axes for the first samples of an op.
        if (!is_small(op, sample) || (shape.size() == 2 && ++pairs > 2)) continue;
        Validator(op, sample).check(mesh, report);
        if (::testing::Test::HasFatalFailure()) return;
      }
      if (mesh->rank() == 0) rows += report.rows;
    });
  }
  EXPECT_GT(rows, 0) << op.name;
}

}  // namespace
}  // namespace tutti::dist
