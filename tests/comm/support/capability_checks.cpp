#include "tests/comm/support/capability_checks.h"

#include "tests/comm/support/sample_calls.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// The UsageError of the call, "" when it succeeds.
std::string refusal_of(ProcessGroup& group, CollectiveKind kind, const SampleOptions& options) {
  try {
    sample_call(group, kind, options).make();
  } catch (const UsageError& error) {
    TUTTI_CHECK(error.what() != std::string(), "an error without a text");
    return error.what();
  }
  return "";
}

ReduceOp op_of(ReduceKind kind) { return kind == ReduceKind::premul_sum ? ReduceOp::premul_sum(0.5) : ReduceOp(kind); }

void check_one(ProcessGroup& group, CollectiveKind kind, DType dtype, ReduceKind reduce, bool uneven) {
  const Answer answer = group.can({.kind = kind, .dtype = dtype, .reduce = reduce, .uneven = uneven});
  const std::string refusal =
      refusal_of(group, kind, {.dtype = dtype, .op = op_of(reduce), .root = group.size() / 2, .uneven = uneven});
  const std::string what =
      fmt::format("{} of {}, {}{}", name_of(kind), name_of(dtype), name_of(reduce), uneven ? ", uneven" : "");
  TUTTI_CHECK(answer.yes == refusal.empty(), "{}: can() says {}, the call says {}", what,
              answer.yes ? "yes" : answer.reason, refusal.empty() ? "yes" : refusal);
  TUTTI_CHECK(answer.yes == answer.reason.empty(), "{}: a yes with a reason, or a no without one", what);
  // Sizes that differ are seen as the fields in which they do.
  TUTTI_CHECK(answer.yes || uneven || refusal.find(answer.reason) != std::string::npos,
              "{}: can() says '{}', the call says '{}'", what, answer.reason, refusal);
}

}  // namespace

void check_capabilities(ProcessGroup& group, bool with_peers) {
  for (const CollectiveKind kind : all_kinds()) {
    for (int d = 0; d < kNumDTypes; ++d) {
      const auto dtype = static_cast<DType>(d);
      for (int r = 0; r < (reduces(kind) ? kNumReduceKinds : 1); ++r)
        check_one(group, kind, dtype, static_cast<ReduceKind>(r), false);
    }
    if (with_peers) check_one(group, kind, DType::f32, ReduceKind::sum, true);
    const Answer elsewhere = group.can({.kind = kind, .device = {.kind = DeviceKind::cuda, .index = 0}});
    TUTTI_CHECK(!elsewhere.yes && elsewhere.reason.find("cuda") != std::string::npos, "{}: '{}'", name_of(kind),
                elsewhere.reason);
  }
}

}  // namespace tutti::comm
