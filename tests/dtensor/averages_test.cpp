// Values that become terms of an average and are averaged again keep their bits, on any number of ranks.
#include <cmath>
#include <limits>

#include "tests/dtensor/support/layouts.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/flip.h"
#include "tutti/ops/gather.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/scatter.h"
#include "tutti/ops/where.h"

namespace tutti::dist {
namespace {

constexpr DType kFloats[] = {DType::f32, DType::bf16, DType::f16, DType::f64};

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504;
    case DType::bf16:
      return 0x1.fep127;
    case DType::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}
double smallest_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 0x1p-24;
    case DType::bf16:
      return 0x1p-133;
    case DType::f32:
      return std::numeric_limits<float>::denorm_min();
    default:
      return std::numeric_limits<double>::denorm_min();
  }
}

// Values of all sizes: sums of several of the largest are infinite.
Tensor values_of(DType dtype, int64_t count) {
  const Tensor t = sample({count}, dtype, 11);
  const double largest = largest_of(dtype), smallest = smallest_of(dtype),
               infinity = std::numeric_limits<double>::infinity();
  int64_t i = 0;
  for (const double v : {0.0, -0.0, largest, -largest, largest / 2, largest / 3, smallest, -smallest, 3 * smallest,
                         5 * smallest, infinity, -infinity})
    facets::write_double(t, i++, v);
  return t;
}

class Averages : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Averages, ::testing::Values(1, 2, 3, 4, 5, 6, 7, 9, 11));

TEST_P(Averages, OfReplicasAreTheirValue) {
  on_mesh({GetParam()}, [](const Mesh& mesh) {
    for (const DType dtype : kFloats) {
      const Tensor whole = values_of(dtype, 10000);
      const Tensor terms =
          redistribute(distribute_tensor(whole, mesh, {}, {.src_data_rank = -1}), {partial(PartialOp::avg)});
      const std::string about = fmt::format("{} on {}", name_of(dtype), mesh->to_string());
      require_none(difference(to_local(redistribute(terms, {replicate()})), whole), "to R: " + about);
      require_none(difference_of_part(redistribute(terms, {shard(0)}), whole), "to S(0): " + about);
      require_none(difference(full_tensor(redistribute(terms, {replicate()}, {.async_op = true})), whole),
                   "later to R: " + about);
      require_none(difference_of_part(redistribute(terms, {shard(0)}, {.async_op = true}), whole),
                   "later to S(0): " + about);
    }
  });
}

TEST(AveragesOver, SeveralMeshDimsAreTheirValue) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{3, 2}, std::vector<int64_t>{2, 3},
                                            std::vector<int64_t>{1, 3}, std::vector<int64_t>{3, 3}}) {
    on_mesh(shape, [](const Mesh& mesh) {
      const Placement avg = partial(PartialOp::avg);
      for (const DType dtype : kFloats) {
        const Tensor whole = reshape(values_of(dtype, 2000), {40, 50});
        for (const Placements& p : {Placements{avg, avg}, Placements{avg, partial()}, Placements{partial(), avg},
                                    Placements{shard(0), avg}, Placements{avg, shard(1)}}) {
          Placements before = p;
          for (Placement& each : before) {
            if (each.is_partial()) each = replicate();
          }
          const Tensor terms = redistribute(distribute_tensor(whole, mesh, before, {.src_data_rank = -1}), p);
          require_none(difference(full_tensor(terms), whole),
                       fmt::format("{} in {} on {}", name_of(dtype), to_string(p), mesh->to_string()));
          require_none(difference_of_part(redistribute(terms, {shard(1), shard(0)}), whole),
                       fmt::format("shards of {} in {} on {}", name_of(dtype), to_string(p), mesh->to_string()));
        }
      }
    });
  }
}

struct Joining {
  const char* name;
  std::function<Tensor(const Tensor& x, const Tensor& y)> run;  // of [6, 8] and [6, 8]
};

// Ops that only move elements: what stands beside an average becomes terms of one.
const std::vector<Joining>& joinings() {
  const Tensor index = Tensor::empty({6, 8}, DType::i64);
  for (int64_t i = 0; i < 48; ++i) index.data<int64_t>()[i] = i * 5 % 6;
  static const std::vector<Joining> all = {
      {"cat of dim 0", [](const Tensor& x, const Tensor& y) { return cat({x, y, x}, 0); }},
      {"cat of dim 1", [](const Tensor& x, const Tensor& y) { return cat({y, x}, 1); }},
      {"stack", [](const Tensor& x, const Tensor& y) { return stack({x, y}, 1); }},
      {"scatter into an average",
       [index](const Tensor& x, const Tensor& y) {
         return scatter(x, 0, is_dtensor(x) ? distribute_tensor(index, mesh_of(x), {}, {.src_data_rank = -1}) : index,
                        y);
       }},
      {"scatter of an average",
       [index](const Tensor& x, const Tensor& y) {
         return scatter(y, 0, is_dtensor(x) ? distribute_tensor(index, mesh_of(x), {}, {.src_data_rank = -1}) : index,
                        x);
       }},
      {"copy_ into an average", [](const Tensor& x, const Tensor& y) { return copy_(clone(x), y); }},
      {"copy_ of an average", [](const Tensor& x, const Tensor& y) { return copy_(clone(y), x); }},
      {"cat, flip and transpose",
       [](const Tensor& x, const Tensor& y) { return transpose(flip(cat({x, y}, 0), {0}), 0, 1); }},
  };
  return all;
}

TEST_P(Averages, KeepTheBitsOfWhatStandsBesideThem) {
  on_mesh({GetParam()}, [](const Mesh& mesh) {
    for (const DType dtype : kFloats) {
      const auto rank = static_cast<uint64_t>(mesh->rank());
      const Tensor y = reshape(values_of(dtype, 48), {6, 8});
      const Tensor x = from_local(sample({6, 8}, dtype, 20 + rank), mesh, {partial(PartialOp::avg)});
      const Tensor value = full_tensor(x), dy = distribute_tensor(y, mesh, {}, {.src_data_rank = -1});
      for (const Joining& op : joinings()) {
        require_none(difference(full_tensor(op.run(x, dy)), op.run(value, y)),
                     fmt::format("{} in {} on {}", op.name, name_of(dtype), mesh->to_string()));
      }
    }
  });
}

// The rounding of averages of different terms is that of the sum by halving, divided once.
TEST_P(Averages, OfDifferentTermsAreTheirSumByHalvingDivided) {
  const int ranks = GetParam();
  on_mesh({ranks}, [ranks](const Mesh& mesh) {
    const Tensor mine = sample({500}, DType::f32, 40 + static_cast<uint64_t>(mesh->rank()));
    std::vector<Tensor> all;
    for (int r = 0; r < ranks; ++r) all.push_back(sample({500}, DType::f32, 40 + static_cast<uint64_t>(r)));
    const std::function<float(int, int, int64_t)> tree = [&](int begin, int end, int64_t i) -> float {
      if (end - begin == 1) return all[static_cast<size_t>(begin)].data<float>()[i];
      const int middle = begin + (end - begin + 1) / 2;
      const float left = tree(begin, middle, i);
      return left + tree(middle, end, i);
    };
    const Tensor wanted = Tensor::empty({500}, DType::f32);
    for (int64_t i = 0; i < 500; ++i) wanted.data<float>()[i] = tree(0, ranks, i) / static_cast<float>(ranks);
    const Tensor terms = from_local(mine, mesh, {partial(PartialOp::avg)});
    require_none(difference(full_tensor(terms), wanted), "to R");
    require_none(difference_of_part(redistribute(terms, {shard(0)}), wanted), "to S(0)");
  });
}

}  // namespace
}  // namespace tutti::dist
