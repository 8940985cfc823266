#include "tests/comm/support/refused_calls.h"

#include "tests/comm/support/sample_calls.h"
#include "tutti/comm/collective_def.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using Kind = CollectiveKind;
constexpr int kOdd = 1;
constexpr int kNoRoot = 77;

enum class Fault { undefined, indivisible, bad_root };
constexpr const char* kFaults[] = {"undefined tensor", "indivisible size", "bad root"};

// The last tensor is undefined. False: there is none.
bool leave_undefined(SampleArguments& a) {
  std::vector<Tensor>& list = !a.output_lists.empty() ? a.output_lists.back()
                              : !a.inputs.empty()     ? a.inputs
                                                      : a.outputs;
  if (list.empty()) return false;
  list.back() = Tensor();
  return true;
}

// Sizes and counts do not fit the number of ranks. False: the call has none that need to.
bool make_indivisible(const CollectiveDef& def, SampleArguments& a) {
  const auto spoil = [](Given given, std::vector<Tensor>& side) {
    if (given == Given::none || given == Given::share) return false;
    for (Tensor& t : side) {
      if (given == Given::whole) t = filled(0, {t.numel() + 1}, t.dtype());
    }
    if (given != Given::whole) side.push_back(filled(0, {5}, DType::f32));
    return true;
  };
  bool any = spoil(def.inputs, a.inputs);
  for (auto& list : a.output_lists) any = spoil(def.outputs, list);
  return (a.output_lists.empty() && spoil(def.outputs, a.outputs)) || any;
}

// Null when the kind of call cannot have the fault.
std::function<void()> wrong_call(ProcessGroup& group, Kind kind, Fault fault) {
  const CollectiveDef& def = definition(kind);
  const SampleCall call = sample_call(group, kind, {.root = fault == Fault::bad_root ? kNoRoot : 0});
  const bool is_wrong =
      fault == Fault::bad_root
          ? def.is_rooted
          : call.arguments != nullptr &&
                (fault == Fault::undefined ? leave_undefined(*call.arguments) : make_indivisible(def, *call.arguments));
  return is_wrong ? call.make : nullptr;
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
  const std::string what =
      fmt::format("rank {}, {} with {}", group.rank(), name_of(kind), kFaults[static_cast<int>(fault)]);
  TUTTI_CHECK(!text.empty(), "{}: nothing was thrown", what);
  const bool is_told =
      text.find("rank 1 refused its call") != std::string::npos && text.find(group.name()) != std::string::npos;
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
