// A redistribute leaves no collective behind that somebody would still have to wait for, also on ranks that get
// nothing.
#include "tests/dtensor/support/layouts.h"
#include "tutti/comm/functional/work_registry.h"
#include "tutti/ops/as_strided.h"
#include "tutti/ops/slice.h"

namespace tutti::dist {
namespace {

using comm::functional::WorkRegistry;

void require_nothing_left(const std::string& about) {
  const int64_t left = WorkRegistry::current().unwaited();
  require_none(left == 0 ? "" : fmt::format("{} works were never waited for", left), about);
}

bool can_be(const Placements& placements) {
  const auto op = std::find_if(placements.begin(), placements.end(), [](const Placement& p) { return p.is_partial(); });
  return op == placements.end() || std::all_of(placements.begin(), placements.end(), [&](const Placement& p) {
           return !p.is_partial() || p.op() == op->op();
         });
}

void try_all(const Mesh& mesh, const Extents& sizes, Cut cut) {
  std::vector<Placement> each{replicate(), partial(), partial(PartialOp::max)};
  for (int d = 0; d < static_cast<int>(sizes.size()); ++d) each.push_back(shard(d));
  for (const Placements& from : choices_of(each, static_cast<size_t>(mesh->ndim()))) {
    for (const Placements& to : choices_of(each, static_cast<size_t>(mesh->ndim()))) {
      if (!can_be(from) || !can_be(to)) continue;
      for (const bool is_async : {false, true}) {
        const std::string about = fmt::format("{} from {} to {} on {}{}", sizes, to_string(from), to_string(to),
                                              mesh->to_string(), is_async ? ", later" : "");
        const Placements whole(from.size());
        const Tensor t = redistribute(
            distribute_tensor(sample(sizes), mesh, whole, {.layout = {.cut = cut}, .src_data_rank = -1}), from);
        require_nothing_left(about + ", before it");
        Tensor result;
        try {
          result = redistribute(t, to, {.async_op = is_async});
        } catch (const UsageError&) {
          continue;  // no plan leads there, on any rank
        }
        if (is_async) result = to_local(result);
        require_nothing_left(about);
      }
    }
  }
}

class NothingLeft : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, NothingLeft,
                         ::testing::Values(std::vector<int64_t>{2}, std::vector<int64_t>{3}, std::vector<int64_t>{2, 2},
                                           std::vector<int64_t>{3, 2}));

TEST_P(NothingLeft, AfterARedistributeOfEmptyAndUnevenParts) {
  ::testing::internal::CaptureStderr();
  on_mesh(GetParam(), [](const Mesh& mesh) {
    const std::vector<Extents> shapes = mesh->ndim() == 1
                                            ? std::vector<Extents>{{0}, {1}, {2}, {5}, {0, 3}, {1, 1}, {2, 3}, {4, 7}}
                                            : std::vector<Extents>{{0}, {1}, {5}, {1, 2}};
    for (const Extents& sizes : shapes) {
      for (const Cut cut : {Cut::halving, Cut::chunk}) try_all(mesh, sizes, cut);
    }
  });
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

// A view reads nothing, so that the terms it is made of are added, and nobody asks for the sum.
TEST_P(NothingLeft, AfterViewsOfTermsThatNobodyReads) {
  on_mesh(GetParam(), [](const Mesh& mesh) {
    for (const PartialOp op : {PartialOp::sum, PartialOp::avg, PartialOp::max}) {
      const Placements terms(static_cast<size_t>(mesh->ndim()), partial(op));
      const Tensor t = from_local(sample({4, 6}), mesh, terms);
      as_strided(t, {2, 3}, {6, 2}, 1);
      narrow(t, 0, 0, 0);
      narrow(t, 1, 2, 3);
      require_nothing_left(fmt::format("views of {} on {}", to_string(terms), mesh->to_string()));
    }
  });
}

}  // namespace
}  // namespace tutti::dist
