#include "tutti/ops/grouped/groups.h"

#include "tutti/ops/indexing/indices.h"
#include "tutti/ops/sum_to.h"

namespace tutti::grouped {
namespace {

using codegen::ContractionTree;

int64_t ragged_extent(const OpCall& call) {
  switch (form_of(call)) {
    case Form::rows:
      return call[0].extents()[0];
    case Form::columns:
      return call[1].extents()[1];
    case Form::contraction:
      return call[1].extents()[0];
  }
  throw InternalError("grouped_mm: no such form");
}

[[noreturn]] void refuse(const OpCall& call, const std::vector<Group>& before, int64_t end, int64_t rows) {
  std::string why = "which is negative";
  if (end > rows) why = fmt::format("beyond the {} elements of the ragged dim", rows);
  else if (!before.empty())
    why = fmt::format("before group {}, which ends at {}", before.size() - 1, before.back().end);
  throw UsageError(
      fmt::format("{}: group {} ends at {}, {}; offsets are cumulative ends, which do not decrease: 0 to {} "
                  "for a {} and b {}",
                  call.op.name, before.size(), end, why, rows, describe(call[0]), describe(call[1])));
}

codegen::GemmOperand operand(const Tensor& t, int64_t element) {
  const size_t n = static_cast<size_t>(t.ndim());
  const char* data = static_cast<const char*>(t.raw_data()) + element * itemsize(t.dtype());
  return {data, t.dtype(), t.strides()[n - 2], t.strides()[n - 1]};
}
codegen::GemmResult result(const Tensor& t, int64_t element) {
  return {static_cast<char*>(t.raw_data()) + element * itemsize(t.dtype()), t.dtype(), t.extents().back()};
}

// How many of a group's elements stand in each range of token positions.
std::vector<int32_t> elements_by_range(const std::vector<int64_t>& positions, const Group& group,
                                       int64_t position_count) {
  const int64_t grain = token_grain();
  std::vector<int32_t> counts(static_cast<size_t>((position_count + grain - 1) / grain), 0);
  for (int64_t i = group.begin; i < group.end; ++i)
    ++counts[static_cast<size_t>(positions[static_cast<size_t>(i)] / grain)];
  return counts;
}

}  // namespace

bool has_positions(const OpCall& call) { return call.inputs.size() > 3; }

Form form_of(int a_ndim, int b_ndim) {
  return a_ndim == 3 ? Form::columns : b_ndim == 3 ? Form::rows : Form::contraction;
}
Form form_of(const OpCall& call) { return form_of(call[0].ndim(), call[1].ndim()); }

std::vector<Group> groups_of(const OpCall& call) { return groups_of(call, ragged_extent(call)); }

std::vector<Group> groups_of(const OpCall& call, int64_t rows) {
  std::vector<Group> groups;
  int64_t begin = 0;
  for (const int64_t end : facets::dense_indices(call[2])) {
    if (end < begin || end > rows) refuse(call, groups, end, rows);
    groups.push_back({begin, end});
    begin = end;
  }
  return groups;
}

void check_groups(const OpCall& call) {
  const std::vector<Group> groups = groups_of(call);
  if (!has_positions(call)) return;
  const std::vector<int64_t> positions = facets::dense_indices(call[3]);
  const int64_t count = call.attrs.as<GroupedAttrs>().position_count.value();
  for (size_t g = 0; g < groups.size(); ++g) {
    int64_t before = 0;
    for (int64_t i = groups[g].begin; i < groups[g].end; ++i) {
      const int64_t position = positions[static_cast<size_t>(i)];
      TUTTI_CHECK(position >= 0 && position < count,
                  "grouped_mm: element {} of group {} stands at position {}; {}, as position_count is {}",
                  i - groups[g].begin, g, position, facets::legal_indices(count), count);
      TUTTI_CHECK(position >= before,
                  "grouped_mm: element {} of group {} stands at position {}, the one before it at {}; sort the "
                  "elements of a group by position",
                  i - groups[g].begin, g, position, before);
      before = position;
    }
  }
}

Product product_of(const OpCall& call, const Tensor& out, int64_t g, const Group& group) {
  const Tensor &a = call[0], &b = call[1];
  const Extents &as = a.strides(), &bs = b.strides(), &sizes = out.extents();
  const int64_t begin = group.begin, n = sizes.back();
  switch (form_of(call)) {
    case Form::rows:
      return {group.size(),          n, a.extents()[1], operand(a, begin * as[0]), operand(b, g * bs[0]),
              result(out, begin * n)};
    case Form::columns:
      return {sizes[0],          group.size(), b.extents()[0], operand(a, g * as[0]), operand(b, begin * bs[1]),
              result(out, begin)};
    case Form::contraction:
      return {sizes[1],
              n,
              group.size(),
              operand(a, begin * as[1]),
              operand(b, begin * bs[0]),
              result(out, g * sizes[1] * n)};
  }
  throw InternalError("grouped_mm: no such form");
}

Trees::Trees(const OpCall& call) : ragged_(form_of(call) == Form::contraction) {
  if (!ragged_) dense_ = ContractionTree::halving(call[0].extents().back());
  if (!ragged_ || !has_positions(call)) return;
  positions_ = facets::dense_indices(call[3]);
  position_count_ = call.attrs.as<GroupedAttrs>().position_count.value();
}

ContractionTree Trees::of(const Group& group) const {
  if (!ragged_) return dense_;
  if (position_count_ == 0) return ContractionTree::halving(group.size(), static_cast<int32_t>(token_grain()));
  return ContractionTree::ranges(elements_by_range(positions_, group, position_count_));
}

}  // namespace tutti::grouped
