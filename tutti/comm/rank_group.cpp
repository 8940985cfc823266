#include "tutti/comm/rank_group.h"

#include <algorithm>
#include <cstring>

#include "tutti/comm/functional/arguments.h"
#include "tutti/comm/group_registry.h"
#include "tutti/core/error.h"
#include "tutti/job/errors.h"

namespace tutti::comm {
namespace {

class GroupOfRanks final : public deploy::RankGroup {
 public:
  explicit GroupOfRanks(std::shared_ptr<ProcessGroup> group)
      : group_(std::move(group)), name_(GroupRegistry::current().name_for(group_)) {}

  std::string name() const override { return name_; }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  void start(const OpCall& call, std::span<const Tensor> outputs) override {
    const functional::GroupStandIn stands_in(call.attrs.as<functional::CallAttrs>().group.name, group_);
    call.op.kernel(call, outputs);
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    const auto count = static_cast<int64_t>(text.size());
    const Tensor mine = Tensor::empty({count}, DType::u8), all = Tensor::empty({count * size()}, DType::u8);
    std::memcpy(mine.raw_data(), text.data(), text.size());
    group_->all_gather_single(all, mine);
    std::vector<std::string> texts;
    for (int r = 0; r < size(); ++r) texts.emplace_back(static_cast<const char*>(all.raw_data()) + r * count, count);
    return texts;
  }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const std::string name_;
};

// ---- in C -----------------------------------------------------------------------------------------------------------

static_assert(TUTTI_SUM == static_cast<int>(ReduceKind::sum) && TUTTI_AVG == static_cast<int>(ReduceKind::avg) &&
              TUTTI_PRODUCT == static_cast<int>(ReduceKind::product) &&
              TUTTI_MIN == static_cast<int>(ReduceKind::min) && TUTTI_MAX == static_cast<int>(ReduceKind::max) &&
              TUTTI_BAND == static_cast<int>(ReduceKind::band) && TUTTI_BOR == static_cast<int>(ReduceKind::bor) &&
              TUTTI_BXOR == static_cast<int>(ReduceKind::bxor) &&
              TUTTI_PREMUL_SUM == static_cast<int>(ReduceKind::premul_sum));

void run(ProcessGroup& group, const tutti_collective_call& call) {
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
  throw UsageError(fmt::format("this library has no collective {}", static_cast<int>(call.collective)));
}

tutti_code run_in_c(void* user, const tutti_collective_call* call) noexcept {
  const auto fail = [&](tutti_code code, const char* text) {
    if (call->error_bytes == 0) return code;
    std::strncpy(call->error, text, call->error_bytes - 1);
    call->error[call->error_bytes - 1] = '\0';
    return code;
  };
  try {
    run(*static_cast<ProcessGroup*>(user), *call);
    return TUTTI_OK;
  } catch (const PeerError& e) {
    return fail(TUTTI_PEER, e.what());
  } catch (const TimeoutError& e) {
    return fail(TUTTI_PEER, e.what());
  } catch (const UsageError& e) {
    return fail(TUTTI_USAGE, e.what());
  } catch (const EnvironmentError& e) {
    return fail(TUTTI_ENVIRONMENT, e.what());
  } catch (const std::exception& e) {
    return fail(TUTTI_INTERNAL, e.what());
  }
}

}  // namespace

std::shared_ptr<deploy::RankGroup> rank_group(std::shared_ptr<ProcessGroup> group) {
  TUTTI_CHECK(group != nullptr, "rank_group: the process group is null; this rank may not be a member of it");
  return std::make_shared<GroupOfRanks>(std::move(group));
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
