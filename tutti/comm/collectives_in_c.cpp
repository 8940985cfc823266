#include "tutti/comm/collectives_in_c.h"

#include <cstring>
#include <new>

#include "tutti/core/error.h"
#include "tutti/job/errors.h"
#include "tutti/runtime/cancellation.h"

namespace tutti::comm {
namespace {

static_assert(TUTTI_SUM == static_cast<int>(ReduceKind::sum) && TUTTI_AVG == static_cast<int>(ReduceKind::avg) &&
              TUTTI_PRODUCT == static_cast<int>(ReduceKind::product) &&
              TUTTI_MIN == static_cast<int>(ReduceKind::min) && TUTTI_MAX == static_cast<int>(ReduceKind::max) &&
              TUTTI_BAND == static_cast<int>(ReduceKind::band) && TUTTI_BOR == static_cast<int>(ReduceKind::bor) &&
              TUTTI_BXOR == static_cast<int>(ReduceKind::bxor) &&
              TUTTI_PREMUL_SUM == static_cast<int>(ReduceKind::premul_sum));

CollectiveKind kind_of(tutti_collective collective) {
  constexpr CollectiveKind kKinds[] = {CollectiveKind::all_reduce, CollectiveKind::all_gather_single,
                                       CollectiveKind::reduce_scatter_single, CollectiveKind::all_to_all_single,
                                       CollectiveKind::broadcast};
  const auto at = static_cast<size_t>(collective);
  TUTTI_CHECK(at < std::size(kKinds), "this library has no collective {}", static_cast<int>(collective));
  return kKinds[at];
}

// What tensors and reductions take for granted, but a program in C may get wrong.
void check(const tutti_collective_call& call) {
  TUTTI_CHECK(static_cast<unsigned>(call.dtype) < kNumDTypes, "there is no dtype {}", static_cast<int>(call.dtype));
  TUTTI_CHECK(static_cast<unsigned>(call.reduce) < kNumReduceKinds, "there is no reduction {}",
              static_cast<int>(call.reduce));
  TUTTI_CHECK(call.input_count >= 0 && call.output_count >= 0,
              "input_count is {} and output_count {}; expected 0 or more", call.input_count, call.output_count);
  TUTTI_CHECK(call.input != nullptr || call.input_count == 0, "input is NULL, and input_count {}", call.input_count);
  TUTTI_CHECK(call.output != nullptr || call.output_count == 0, "output is NULL, and output_count {}",
              call.output_count);
  const bool has_equal_sides = call.collective == TUTTI_ALL_REDUCE || call.collective == TUTTI_BROADCAST;
  TUTTI_CHECK(!has_equal_sides || call.input_count == call.output_count,
              "input_count is {} and output_count {}; expected the same", call.input_count, call.output_count);
}

void run(ProcessGroup& group, const tutti_collective_call& call) {
  check(call);
  const auto dtype = static_cast<DType>(call.dtype);
  const auto kind = static_cast<ReduceKind>(call.reduce);
  const ReduceOp reduce = kind == ReduceKind::premul_sum ? ReduceOp::premul_sum(call.factor) : ReduceOp(kind);
  const Tensor output = Tensor::from_memory(call.output, {call.output_count}, dtype, [] {});
  // Nobody writes it.
  const Tensor input = Tensor::from_memory(const_cast<void*>(call.input), {call.input_count}, dtype, [] {});
  switch (call.collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_BROADCAST:
      if (output.nbytes() > 0) std::memmove(call.output, call.input, static_cast<size_t>(output.nbytes()));
      if (call.collective == TUTTI_ALL_REDUCE) group.all_reduce(output, reduce);
      else group.broadcast(output, call.root);
      return;
    case TUTTI_ALL_GATHER_SINGLE:
      group.all_gather_single(output, input);
      return;
    case TUTTI_REDUCE_SCATTER_SINGLE:
      group.reduce_scatter_single(output, input, reduce);
      return;
    case TUTTI_ALL_TO_ALL_SINGLE:
      group.all_to_all_single(output, input);
      return;
  }
}

tutti_code run_in_c(void* user, const tutti_collective_call* call) noexcept {
  if (user == nullptr || call == nullptr) return TUTTI_USAGE;  // there is no place for a text
  const CancellationOff until_return;
  try {
    ProcessGroup& group = *static_cast<ProcessGroup*>(user);
    group.checked(kind_of(call->collective), [&] { run(group, *call); });
    return TUTTI_OK;
  } catch (...) {
    return say_exception(*call);
  }
}

}  // namespace

tutti_code code_of_exception(std::string& text) noexcept {
  const auto say = [&](tutti_code code, const char* what) {
    try {
      text = what;
    } catch (const std::bad_alloc&) {
      text.clear();
    }
    return code;
  };
  try {
    throw;
  } catch (const PeerError& e) {
    return say(TUTTI_PEER, e.what());
  } catch (const TimeoutError& e) {
    return say(TUTTI_PEER, e.what());
  } catch (const StoreTimeout& e) {
    return say(TUTTI_PEER, e.what());
  } catch (const UsageError& e) {
    return say(TUTTI_USAGE, e.what());
  } catch (const EnvironmentError& e) {
    return say(TUTTI_ENVIRONMENT, e.what());
  } catch (const std::bad_alloc&) {
    return say(TUTTI_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return say(TUTTI_INTERNAL, e.what());
  } catch (...) {
    return say(TUTTI_INTERNAL, "an exception that is no std::exception");
  }
}

tutti_code say_exception(const tutti_collective_call& call) noexcept {
  std::string text;
  const tutti_code code = code_of_exception(text);
  if (call.error == nullptr || call.error_bytes == 0) return code;
  std::strncpy(call.error, text.c_str(), call.error_bytes - 1);
  call.error[call.error_bytes - 1] = '\0';
  return code;
}

CollectivesInC::CollectivesInC(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)), table_{} {
  TUTTI_CHECK(group_ != nullptr, "CollectivesInC: the process group is null; this rank may not be a member of it");
  table_.struct_size = sizeof table_;
  table_.rank = group_->rank();
  table_.ranks = group_->size();
  table_.user = group_.get();
  table_.run = run_in_c;
}

}  // namespace tutti::comm
