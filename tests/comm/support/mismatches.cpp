#include "tests/comm/support/mismatches.h"

#include <ostream>

#include "tests/comm/support/sample_calls.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int kRanks = kMismatchRanks;
constexpr int kOdd = 1;  // the rank that calls differently

Tensor f32(const Extents& sizes) { return filled(0, sizes, DType::f32); }
Tensor i32(const Extents& sizes) { return filled(0, sizes, DType::i32); }

std::vector<Tensor> all(std::initializer_list<int64_t> sizes) {
  std::vector<Tensor> list;
  for (const int64_t size : sizes) list.push_back(f32({size}));
  return list;
}

// From outputs and inputs, `outputs` of them in front.
template <class Fn>
Attempt lists(std::vector<Tensor> outputs, const std::vector<Tensor>& inputs, Fn fn) {
  const size_t split = outputs.size();
  outputs.insert(outputs.end(), inputs.begin(), inputs.end());
  return {outputs, [fn, split](Tensors t) { fn(t.first(split), t.subspan(split)); }};
}

// The W outputs of each input one after another.
void gather_lists(ProcessGroup& group, Tensors outputs, Tensors inputs) {
  std::vector<std::vector<Tensor>> lists;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensors list = outputs.subspan(i * kRanks, kRanks);
    lists.emplace_back(list.begin(), list.end());
  }
  group.all_gather_coalesced(lists, inputs);
}

}  // namespace

const std::vector<Mismatch>& mismatches() {
  using G = ProcessGroup;
  static const std::vector<Mismatch> list = {
      {"Operations", "operations",
       [](G& g, bool odd) -> Attempt {
         return {{f32({6})}, [&g, odd](Tensors t) { odd ? g.broadcast(t[0], 0) : g.all_reduce(t[0]); }};
       }},
      {"BarrierAndCollective", "operations",
       [](G& g, bool odd) -> Attempt {
         return {all({6, 18}), [&g, odd](Tensors t) { odd ? g.barrier() : g.all_gather_single(t[1], t[0]); }};
       }},
      {"ReduceOps", "reduce ops",
       [](G& g, bool odd) -> Attempt {
         return {{f32({5000})}, [&g, odd](Tensors t) { g.all_reduce(t[0], odd ? ReduceKind::max : ReduceKind::sum); }};
       }},
      {"ScaledAndPlainSums", "reduce ops",
       [](G& g, bool odd) -> Attempt {
         return {{f32({6})}, [&g, odd](Tensors t) { g.all_reduce(t[0], odd ? ReduceOp::premul_sum(2) : ReduceOp()); }};
       }},
      {"RootsOfBroadcast", "roots",
       [](G& g, bool odd) -> Attempt {
         return {{f32({5000})}, [&g, odd](Tensors t) { g.broadcast(t[0], odd ? 1 : 0); }};
       }},
      {"RootsOfReduce", "roots",
       [](G& g, bool odd) -> Attempt { return {{f32({6})}, [&g, odd](Tensors t) { g.reduce(t[0], odd ? 1 : 0); }}; }},
      {"RootsOfGather", "roots",
       [](G& g, bool odd) -> Attempt {
         const int root = odd ? kOdd : 0;
         return lists(g.rank() == root ? all({6, 6, 6}) : all({}), all({6}),
                      [&g, root](Tensors out, Tensors in) { g.gather(out, in[0], root); });
       }},
      {"RootsOfScatter", "roots",
       [](G& g, bool odd) -> Attempt {
         const int root = odd ? kOdd : 0;
         return lists(all({6}), g.rank() == root ? all({6, 6, 6}) : all({}),
                      [&g, root](Tensors out, Tensors in) { g.scatter(out[0], in, root); });
       }},
      {"Dtypes", "dtypes",
       [](G& g, bool odd) -> Attempt {
         return {{odd ? i32({6}) : f32({6})}, [&g](Tensors t) { g.all_reduce(t[0]); }};
       }},
      {"NumbersOfDims", "numbers of dims",
       [](G& g, bool odd) -> Attempt {
         return {{odd ? f32({2, 3}) : f32({6})}, [&g](Tensors t) { g.all_reduce(t[0]); }};
       }},
      {"Shapes", "shapes",
       [](G& g, bool odd) -> Attempt { return {{f32({odd ? 7 : 6})}, [&g](Tensors t) { g.all_reduce(t[0]); }}; }},
      {"ShapesOfEqualSize", "shapes",
       [](G& g, bool odd) -> Attempt {
         return {{odd ? f32({3, 2}) : f32({2, 3})}, [&g](Tensors t) { g.broadcast(t[0], 0); }};
       }},
      {"NumbersOfTensors", "numbers of tensors",
       [](G& g, bool odd) -> Attempt {
         return {odd ? all({6, 7}) : all({6, 7, 8}), [&g](Tensors t) { g.all_reduce_coalesced(t); }};
       }},
      {"ShapeOfALaterTensor", "the shapes of tensor 3 differ: rank 0 gives f32 [8], rank 1 gives f32 [9]",
       [](G& g, bool odd) -> Attempt {
         return {odd ? all({6, 7, 9}) : all({6, 7, 8}), [&g](Tensors t) { g.all_reduce_coalesced(t); }};
       }},
      {"DtypeOfALaterTensor", "the dtypes of tensor 2 differ: rank 0 gives f32 [7], rank 1 gives i32 [7]",
       [](G& g, bool odd) -> Attempt {
         return {{f32({6}), odd ? i32({7}) : f32({7})}, [&g](Tensors t) { g.all_reduce_coalesced(t); }};
       }},
      {"ShapeOfTheFirstTensor", "the shapes of tensor 1 differ: rank 0 gives f32 [6], rank 1 gives f32 [5]",
       [](G& g, bool odd) -> Attempt {
         return {odd ? all({5, 7}) : all({6, 7}), [&g](Tensors t) { g.all_reduce_coalesced(t); }};
       }},
      {"OrderOfCoalescedTensors", "the shapes of tensor 1 differ: rank 0 gives f32 [6], rank 1 gives f32 [7]",
       [](G& g, bool odd) -> Attempt {
         return lists(odd ? all({21, 18}) : all({18, 21}), odd ? all({7, 6}) : all({6, 7}),
                      [&g](Tensors out, Tensors in) { g.all_gather_single_coalesced(out, in); });
       }},
      {"LaterCoalescedScatter", "the shapes of tensor 2 differ: rank 0 gives f32 [7], rank 1 gives f32 [8]",
       [](G& g, bool odd) -> Attempt {
         return lists(odd ? all({6, 8}) : all({6, 7}), odd ? all({18, 24}) : all({18, 21}),
                      [&g](Tensors out, Tensors in) { g.reduce_scatter_single_coalesced(out, in); });
       }},
      {"LaterCoalescedGather", "the shapes of tensor 2 differ: rank 0 gives f32 [7], rank 1 gives f32 [8]",
       [](G& g, bool odd) -> Attempt {
         return lists(odd ? all({18, 24}) : all({18, 21}), odd ? all({6, 8}) : all({6, 7}),
                      [&g](Tensors out, Tensors in) { g.all_gather_single_coalesced(out, in); });
       }},
      {"OrderOfCoalescedScatters", "the shapes of tensor 1 differ: rank 0 gives f32 [6], rank 1 gives f32 [7]",
       [](G& g, bool odd) -> Attempt {
         return lists(odd ? all({7, 6}) : all({6, 7}), odd ? all({21, 18}) : all({18, 21}),
                      [&g](Tensors out, Tensors in) { g.reduce_scatter_single_coalesced(out, in); });
       }},
      {"LaterGatherOfLists",
       "all_gather_coalesced of 2 tensors: the shapes of tensor 2 differ: rank 0 gives f32 [7], rank 1 gives f32 [8]",
       [](G& g, bool odd) -> Attempt {
         const int64_t later = odd ? 8 : 7;
         return lists(all({6, 6, 6, later, later, later}), all({6, later}),
                      [&g](Tensors out, Tensors in) { gather_lists(g, out, in); });
       }},
      {"DtypeOfALaterGatherOfLists", "the dtypes of tensor 2 differ: rank 0 gives f32 [7], rank 1 gives i32 [7]",
       [](G& g, bool odd) -> Attempt {
         std::vector<Tensor> out = all({6, 6, 6});
         for (int p = 0; p < kRanks; ++p) out.push_back(odd ? i32({7}) : f32({7}));
         return lists(out, {f32({6}), odd ? i32({7}) : f32({7})},
                      [&g](Tensors o, Tensors in) { gather_lists(g, o, in); });
       }},
      {"TableOfALaterGatherOfLists",
       "the shapes of output 2 of tensor 2 differ: rank 0 gives f32 [6], rank 1 gives f32 [7]",
       [](G& g, bool odd) -> Attempt {
         return lists(all({6, 6, 6, 4, 5, odd ? 7 : 6}), {f32({6}), f32({4 + g.rank()})},
                      [&g](Tensors out, Tensors in) { gather_lists(g, out, in); });
       }},
      {"EvenAndUnevenGathersOfLists", "kinds of sizes (equal and uneven)",
       [](G& g, bool odd) -> Attempt {
         return lists(all({6, 6, 6, 4, 4, odd ? 5 : 4}), all({6, 4}),
                      [&g](Tensors out, Tensors in) { gather_lists(g, out, in); });
       }},
      {"NumbersOfGathersOfLists", "numbers of tensors",
       [](G& g, bool odd) -> Attempt {
         return lists(odd ? all({6, 6, 6}) : all({6, 6, 6, 4, 4, 4}), odd ? all({6}) : all({6, 4}),
                      [&g](Tensors out, Tensors in) { gather_lists(g, out, in); });
       }},
      {"SizesOfAllGather", "the sizes differ",
       [](G& g, bool odd) -> Attempt {
         const std::vector<Tensor> out = odd ? all({4, 5, 7}) : all({4, 5, 6});
         return lists(out, {f32({4 + g.rank()})}, [&g](Tensors o, Tensors in) { g.all_gather_v(o, in[0]); });
       }},
      {"EvenAndUnevenAllGather", "operations",
       [](G& g, bool odd) -> Attempt {
         return lists(odd ? all({4, 4, 5}) : all({4, 4, 4}), all({4}),
                      [&g](Tensors out, Tensors in) { g.all_gather(out, in[0]); });
       }},
      {"SizesOfReduceScatter", "the sizes differ",
       [](G& g, bool odd) -> Attempt {
         return lists({f32({4 + g.rank()})}, odd ? all({4, 5, 7}) : all({4, 5, 6}),
                      [&g](Tensors out, Tensors in) { g.reduce_scatter_v(out[0], in); });
       }},
      {"EvenAndUnevenReduceScatter", "operations",
       [](G& g, bool odd) -> Attempt {
         return lists(all({4}), odd ? all({4, 4, 5}) : all({4, 4, 4}),
                      [&g](Tensors out, Tensors in) { g.reduce_scatter(out[0], in); });
       }},
      {"SizesOfAllToAll", "the sizes differ",
       [](G& g, bool odd) -> Attempt {
         return lists(all({4, 4, 4}), odd ? all({4, 4, 5000}) : all({4, 4, 4}),
                      [&g](Tensors out, Tensors in) { g.all_to_all(out, in); });
       }},
      {"Splits", "the sizes differ",
       [](G& g, bool odd) -> Attempt {
         const std::vector<int64_t> even(3, 2), skewed = {1, 2, 3};
         return {all({6, 6}), [&g, even, splits = odd ? skewed : even](Tensors t) {
                   g.all_to_all_v_single(t[0], t[1], even, splits);
                 }};
       }},
      {"SplitsAndNoSplits", "operations",
       [](G& g, bool odd) -> Attempt {
         return {all({6, 6}), [&g, odd](Tensors t) {
                   const std::vector<int64_t> even(3, 2);
                   odd ? g.all_to_all_v_single(t[0], t[1], even, even) : g.all_to_all_single(t[0], t[1]);
                 }};
       }},
      {"RowsBeyondTheCapacity",
       "rank 1 would receive 6 rows, 3 of them (the most) from rank 2, more than its capacity of 5",
       [](G& g, bool odd) -> Attempt {
         // Rank p sends p + 1 rows to every rank.
         const Tensor splits = Tensor::of(std::vector<int64_t>(3, g.rank() + 1)),
                      received = Tensor::of<int64_t>({7, 7, 7});
         return {{f32({odd ? 5 : 6, 2}), f32({9, 2}), received},
                 [&g, splits](Tensors t) { g.all_to_all_v_padded_single(t[0], t[2], t[1], splits); }};
       }},
      {"RowsOfOtherSizes", "the sizes differ",
       [](G& g, bool odd) -> Attempt {
         const Tensor splits = Tensor::of<int64_t>({1, 1, 1}), received = Tensor::of<int64_t>({7, 7, 7});
         const int64_t elements = odd ? 5000 : 4;
         return {{f32({6, elements}), f32({4, elements}), received},
                 [&g, splits](Tensors t) { g.all_to_all_v_padded_single(t[0], t[2], t[1], splits); }};
       }},
      {"AgreementKeys", "the plans (agreement keys) differ",
       [](G& g, bool odd) -> Attempt {
         return {{f32({6})}, [&g, odd](Tensors t) { g.all_reduce(t[0], {}, {.agreement = odd ? 7u : 8u}); }};
       }},
      {"AgreementKeysOfUnevenCalls", "the plans (agreement keys) differ",
       [](G& g, bool odd) -> Attempt {
         return lists(all({4, 4, 4}), all({4, 4, 4}),
                      [&g, odd](Tensors out, Tensors in) { g.all_to_all(out, in, {.agreement = odd ? 7u : 0u}); });
       }},
      {"RootsOfBytes", "roots",
       [](G& g, bool odd) -> Attempt { return {{}, [&g, odd](Tensors) { g.broadcast_bytes("some", odd ? 1 : 0); }}; }},
  };
  return list;
}

void PrintTo(const Mismatch& mismatch, std::ostream* out) { *out << mismatch.name; }

namespace {

bool names_rank(const std::string& text, int rank) {
  const std::string name = fmt::format("rank {}", rank);
  const size_t at = text.find(name);
  return at != std::string::npos && (text[at + name.size()] == ' ' || text[at + name.size()] == ',');
}

void expect_refused(ProcessGroup& group, const Mismatch& mismatch) {
  const Attempt attempt = mismatch.attempt(group, group.rank() == kOdd);
  const uint64_t before = checksum(attempt.tensors);
  std::string text;
  try {
    attempt.make(attempt.tensors);
  } catch (const UsageError& error) {
    text = error.what();
  }
  TUTTI_CHECK(!text.empty(), "rank {}: nothing was thrown", group.rank());
  for (const std::string& part : {fmt::format("of group '{}'", group.name()), std::string(mismatch.field)}) {
    TUTTI_CHECK(text.find(part) != std::string::npos, "rank {}: '{}' is not in: {}", group.rank(), part, text);
  }
  TUTTI_CHECK(names_rank(text, kOdd) && (names_rank(text, 0) || names_rank(text, 2)),
              "rank {}: two ranks are not in: {}", group.rank(), text);
  TUTTI_CHECK(checksum(attempt.tensors) == before, "rank {}: the tensors were written", group.rank());
  const Tensor one = Tensor::of<float>({1});
  group.all_reduce(one);
  TUTTI_CHECK(one.item() == kRanks, "rank {}: the sum afterwards is {}", group.rank(), one.item());
}

}  // namespace

void check_mismatch(ProcessGroup& group, const Mismatch& mismatch) {
  for (int i = 0; i < 3; ++i) expect_refused(group, mismatch);
}

}  // namespace tutti::comm
