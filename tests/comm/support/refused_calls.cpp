#include "tests/comm/support/refused_calls.h"

#include "tests/comm/support/sample_calls.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Kind = CollectiveKind;
constexpr int kOdd = 1;
constexpr int kNoRoot = 77;

enum class Fault { undefined, indivisible, bad_root };
constexpr const char* kFaults[] = {"undefined tensor", "indivisible size", "bad root"};

Tensor five() { return filled(0, {5}, DType::f32); }
std::vector<Tensor> fives(int count) {
  std::vector<Tensor> list;
  for (int i = 0; i < count; ++i) list.push_back(five());
  return list;
}

std::function<void()> with_undefined(ProcessGroup& g, Kind kind) {
  const Tensor none, some = five();
  const std::vector<Tensor> list = fives(g.size());
  std::vector<Tensor> holey = list;
  holey.back() = none;
  switch (kind) {
    case Kind::broadcast: return [&g, none] { g.broadcast(none, 0); };
    case Kind::all_reduce: return [&g, none] { g.all_reduce(none); };
    case Kind::all_reduce_coalesced: return [&g, holey] { g.all_reduce_coalesced(holey); };
    case Kind::reduce: return [&g, none] { g.reduce(none, 0); };
    case Kind::all_gather: return [&g, holey, some] { g.all_gather(holey, some); };
    case Kind::all_gather_v: return [&g, list, none] { g.all_gather_v(list, none); };
    case Kind::all_gather_coalesced:
      return [&g, list, holey, some] { g.all_gather_coalesced(std::vector{list, holey}, std::vector{some, some}); };
    case Kind::all_gather_single: return [&g, some, none] { g.all_gather_single(none, some); };
    case Kind::all_gather_single_coalesced: return [&g, holey] { g.all_gather_single_coalesced(holey, holey); };
    case Kind::gather: return [&g, none] { g.gather({}, none, 0); };
    case Kind::scatter: return [&g, none] { g.scatter(none, {}, 0); };
    case Kind::reduce_scatter: return [&g, holey, some] { g.reduce_scatter(some, holey); };
    case Kind::reduce_scatter_v: return [&g, list, none] { g.reduce_scatter_v(none, list); };
    case Kind::reduce_scatter_single: return [&g, some, none] { g.reduce_scatter_single(some, none); };
    case Kind::reduce_scatter_single_coalesced: return [&g, holey] { g.reduce_scatter_single_coalesced(holey, holey); };
    case Kind::all_to_all: return [&g, list, holey] { g.all_to_all(list, holey); };
    case Kind::all_to_all_single: return [&g, some, none] { g.all_to_all_single(some, none); };
    case Kind::all_to_all_v_single: return [&g, some, none] { g.all_to_all_v_single(none, some, {}, {}); };
    default: return nullptr;
  }
}

// Sizes and counts that do not fit the number of ranks.
std::function<void()> with_indivisible(ProcessGroup& g, Kind kind) {
  const Tensor small = five(), large = filled(0, {5 * g.size() + 1}, DType::f32);
  const std::vector<Tensor> many = fives(g.size() + 1), smalls{small, small}, larges{large, large};
  switch (kind) {
    case Kind::all_gather: return [&g, many, small] { g.all_gather(many, small); };
    case Kind::all_gather_v: return [&g, many, small] { g.all_gather_v(many, small); };
    case Kind::all_gather_coalesced: return [&g, many, smalls] { g.all_gather_coalesced(std::vector{many, many}, smalls); };
    case Kind::all_gather_single: return [&g, small, large] { g.all_gather_single(large, small); };
    case Kind::all_gather_single_coalesced: return [&g, smalls, larges] { g.all_gather_single_coalesced(larges, smalls); };
    case Kind::gather: return [&g, many, small] { g.gather(many, small, 0); };
    case Kind::scatter: return [&g, many, small] { g.scatter(small, many, 0); };
    case Kind::reduce_scatter: return [&g, many, small] { g.reduce_scatter(small, many); };
    case Kind::reduce_scatter_v: return [&g, many, small] { g.reduce_scatter_v(small, many); };
    case Kind::reduce_scatter_single: return [&g, small, large] { g.reduce_scatter_single(small, large); };
    case Kind::reduce_scatter_single_coalesced: return [&g, smalls, larges] { g.reduce_scatter_single_coalesced(smalls, larges); };
    case Kind::all_to_all: return [&g, many] { g.all_to_all(many, many); };
    case Kind::all_to_all_single: return [&g, large] { g.all_to_all_single(large, large); };
    case Kind::all_to_all_v_single:
      return [&g, large] {
        const std::vector<int64_t> splits(static_cast<size_t>(g.size()), 5);
        g.all_to_all_v_single(large, large, splits, splits);
      };
    default: return nullptr;
  }
}

std::function<void()> with_bad_root(ProcessGroup& g, Kind kind) {
  const Tensor some = five();
  switch (kind) {
    case Kind::broadcast: return [&g, some] { g.broadcast(some, kNoRoot); };
    case Kind::reduce: return [&g, some] { g.reduce(some, kNoRoot); };
    case Kind::gather: return [&g, some] { g.gather({}, some, kNoRoot); };
    case Kind::scatter: return [&g, some] { g.scatter(some, {}, kNoRoot); };
    case Kind::broadcast_bytes: return [&g] { g.broadcast_bytes("text", kNoRoot); };
    case Kind::gather_bytes: return [&g] { g.gather_bytes("text", kNoRoot); };
    case Kind::scatter_bytes: return [&g] { g.scatter_bytes({}, kNoRoot); };
    default: return nullptr;
  }
}

std::function<void()> wrong_call(ProcessGroup& group, Kind kind, Fault fault) {
  switch (fault) {
    case Fault::undefined: return with_undefined(group, kind);
    case Fault::indivisible: return with_indivisible(group, kind);
    default: return with_bad_root(group, kind);
  }
}

std::string usage_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

void check_refused_call(ProcessGroup& group, Kind kind, Fault fault) {
  const bool is_odd = group.rank() == kOdd;
  const SampleCall right = sample_call(group, kind);
  const std::function<void()> wrong = wrong_call(group, kind, fault);
  const uint64_t before = checksum(right.outputs);
  const std::string text = usage_error_of(is_odd ? wrong : right.make);
  const std::string what = fmt::format("rank {}, {} with {}", group.rank(), name_of(kind), kFaults[static_cast<int>(fault)]);
  TUTTI_CHECK(!text.empty(), "{}: nothing was thrown", what);
  const bool is_told = text.find("rank 1 refused its call") != std::string::npos && text.find(group.name()) != std::string::npos;
  TUTTI_CHECK(is_told != is_odd, "{}: {}", what, text);
  TUTTI_CHECK(checksum(right.outputs) == before, "{}: an output was written", what);
  const Tensor one = Tensor::of<float>({1});
  group.all_reduce(one);
  TUTTI_CHECK(one.item() == group.size(), "{}: the sum afterwards is {}", what, one.item());
}

}  // namespace

void check_refused_calls(ProcessGroup& group) {
  for (const Kind kind : all_kinds()) {
    for (const Fault fault : {Fault::undefined, Fault::indivisible, Fault::bad_root}) {
      if (wrong_call(group, kind, fault)) check_refused_call(group, kind, fault);
    }
  }
}

}  // namespace tutti::comm
