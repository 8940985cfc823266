#include "tutti/comm/nccl/nccl_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/nccl/nccl_call.h"
#include "tutti/core/error.h"
#include "tutti/job/deadline.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookInterval{200};  // at the store, for failures of other ranks
constexpr milliseconds kFinalizeTimeout{5000};

milliseconds left_until(Clock::time_point deadline) {
  return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

}  // namespace

NcclCommunicator::NcclCommunicator(NcclOptions options)
    : options_(std::move(options)), timeout_ms_(options_.timeout.count()) {
  TUTTI_CHECK(options_.size >= 1 && options_.rank >= 0 && options_.rank < options_.size,
              "backend nccl: rank {} of {} ranks", options_.rank, options_.size);
  TUTTI_CHECK(options_.device.kind == DeviceKind::cuda, "backend nccl: works on cuda devices, not on {}",
              to_string(options_.device));
  TUTTI_CHECK(options_.store != nullptr, "backend nccl: group '{}' needs a store to meet its ranks", options_.group);
  if (!options_.gpu) options_.gpu = GpuApi::open();
  if (!options_.nccl) options_.nccl = NcclApi::open();
  watch_ = options_.store->clone();
  const auto deadline = deadline_after(options_.timeout);

  // 1. Rank 0 makes the id under which all meet, and puts it into the store.
  const std::string key = "nccl/" + options_.group + "/id";
  NcclApi::UniqueId id{};
  if (options_.rank == 0) {
    const int result = nccl().get_unique_id(&id);
    TUTTI_CHECK_ENV(result == NcclApi::kSuccess, "backend nccl: {}", error_text(result, "ncclGetUniqueId"));
    options_.store->set(key, std::string_view(id.bytes, sizeof id.bytes));
  } else {
    std::string bytes;
    try {
      bytes = options_.store->get(key, left_until(deadline));
    } catch (const StoreTimeout& error) {
      throw TimeoutError(
          fmt::format("backend nccl: rank {} of group '{}' waited {} ms for rank 0 to open the group: {}",
                      options_.rank, options_.group, options_.timeout.count(), error.what()));
    }
    TUTTI_CHECK_ENV(bytes.size() == sizeof id.bytes,
                    "backend nccl: the id of group '{}' in the store has {} bytes; expected {}. Is the "
                    "name used by another program?",
                    options_.group, bytes.size(), sizeof id.bytes);
    std::memcpy(id.bytes, bytes.data(), bytes.size());
  }
  // 2. All join.
  const GpuApi::OnDevice on_device(gpu(), options_.device.index);
  gpu().check(gpu().stream_create_with_flags(&stream_, GpuApi::kNonBlockingStream), "StreamCreateWithFlags");
  try {
    gpu().check(gpu().event_create_with_flags(&before_, GpuApi::kEventWithoutTiming), "EventCreateWithFlags");
    NcclApi::Config config;
    config.comm_name = options_.group.c_str();
    const int result = nccl().comm_init_rank_config(&comm_, options_.size, id, options_.rank, &config);
    TUTTI_CHECK_ENV(result == NcclApi::kSuccess || result == NcclApi::kInProgress,
                    "backend nccl: rank {} cannot join group '{}': {}", options_.rank, options_.group,
                    error_text(result, "ncclCommInitRankConfig"));
    settle(deadline, options_.timeout, fmt::format("joining group '{}' on rank {}", options_.group, options_.rank));
  } catch (...) {
    end_comm("joining failed");
    if (before_) gpu().event_destroy(before_);
    gpu().stream_destroy(stream_);
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  // Every call holds this object: none is under way.
  if (comm_ != nullptr) {
    const auto deadline = deadline_after(kFinalizeTimeout);
    int state = nccl().comm_finalize(comm_);
    while (state == NcclApi::kSuccess || state == NcclApi::kInProgress) {
      if (nccl().comm_get_async_error(comm_, &state) != NcclApi::kSuccess || state != NcclApi::kInProgress ||
          Clock::now() > deadline)
        break;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    state == NcclApi::kSuccess ? nccl().comm_destroy(comm_) : nccl().comm_abort(comm_);
  }
  gpu().event_destroy(before_);
  gpu().stream_destroy(stream_);
}

std::string NcclCommunicator::error_text(int result, const char* function) const {
  const char* detail = comm_ != nullptr ? nccl().get_last_error(comm_) : nullptr;
  return fmt::format("{} failed: {} (result {}){}{}", function, nccl().get_error_string(result), result,
                     detail != nullptr && *detail != '\0' ? ": " : "", detail != nullptr ? detail : "");
}

std::string NcclCommunicator::describe_call(const CallRecord& record) const {
  return fmt::format("{} #{} of group '{}' on rank {}", describe(record), record.sequence, options_.group,
                     options_.rank);
}

void NcclCommunicator::Launch::check(int result, const char* function) const {
  if (result == NcclApi::kSuccess || result == NcclApi::kInProgress) return;
  throw EnvironmentError(fmt::format("{}: {}", owner.describe_call(record), owner.error_text(result, function)));
}

Work NcclCommunicator::submit(CallRecord record, FunctionRef<void(const Launch&)> launch, std::vector<Tensor> tensors,
                              size_t first_output, const CallOptions& options) {
  const auto timeout = options.timeout.value_or(milliseconds(timeout_ms_.load()));
  checks::timeout(name_of(record.kind), timeout);
  const auto deadline = deadline_after(timeout);
  std::shared_ptr<NcclCall> call;
  {
    std::lock_guard submitting(submit_mutex_);
    record.sequence =
        record.kind == CollectiveKind::send || record.kind == CollectiveKind::recv ? ++messages_ : ++collectives_;
    if (!failure().empty()) throw_failure(record);
    const GpuApi::OnDevice on_device(gpu(), options_.device.index);
    gpu().check(gpu().event_record(before_, options_.current_stream ? options_.current_stream() : nullptr),
                "EventRecord");
    gpu().check(gpu().stream_wait_event(stream_, before_, 0), "StreamWaitEvent");
    uint64_t recorded = 0;
    if (options_.recorder != nullptr) {
      int64_t bytes_in = 0, bytes_out = 0;
      for (size_t t = 0; t < tensors.size(); ++t) (t < first_output ? bytes_in : bytes_out) += tensors[t].nbytes();
      recorded = options_.recorder->begin(*options_.flight_group, record, first_output == 0 ? bytes_out : bytes_in,
                                          bytes_out, timeout.count());
    }
    GpuApi::Event event = nullptr;
    try {
      {
        std::lock_guard lock(comm_mutex_);
        if (comm_ == nullptr) throw PeerError(failure_);
        const Launch on{comm_, stream_, *this, record};
        on.check(nccl().group_start(), "ncclGroupStart");
        try {
          launch(on);
        } catch (...) {
          nccl().group_end();  // its result is that of the failure under way
          throw;
        }
        on.check(nccl().group_end(), "ncclGroupEnd");
      }
      settle(deadline, timeout, describe_call(record));
      gpu().check(gpu().event_create_with_flags(&event, GpuApi::kEventWithoutTiming), "EventCreateWithFlags");
      gpu().check(gpu().event_record(event, stream_), "EventRecord");
    } catch (const std::exception& error) {
      // What part of the call the others will see is unknown: the group ends everywhere.
      if (event != nullptr) gpu().event_destroy(event);
      if (options_.recorder != nullptr) options_.recorder->ended(recorded, FlightState::failed);
      abort(error.what());
      throw;
    }
    call = std::make_shared<NcclCall>(shared_from_this(), record, event, std::move(tensors), first_output, deadline,
                                      timeout, recorded);
  }
  Work work(call);
  if (options.async) return work;
  work.wait();
  return {};
}

void NcclCommunicator::settle(Clock::time_point deadline, milliseconds timeout, const std::string& what) {
  for (std::chrono::microseconds pause{1};; pause = std::min(pause * 2, std::chrono::microseconds(1000))) {
    {
      std::lock_guard lock(comm_mutex_);
      if (comm_ == nullptr) throw PeerError(fmt::format("{}: {}", what, failure_));
      int state = NcclApi::kSuccess;
      const int result = nccl().comm_get_async_error(comm_, &state);
      if (result == NcclApi::kSuccess && state == NcclApi::kSuccess) return;
      if (result != NcclApi::kSuccess || state != NcclApi::kInProgress) {
        throw PeerError(fmt::format("{}: {}", what, error_text(result != NcclApi::kSuccess ? result : state, "NCCL")));
      }
    }
    look_for_failure_of_peers();
    if (Clock::now() > deadline) time_out(what, timeout);
    std::this_thread::sleep_for(pause);
  }
}

void NcclCommunicator::time_out(const std::string& what, milliseconds timeout) {
  const std::string reason = fmt::format(
      "{} did not end within {} ms: a rank has not made this call or cannot be reached, and NCCL does not say which; "
      "the dumps of the "
      "flight recorder do (tutti trace why)",
      what, timeout.count());
  abort(reason);
  throw TimeoutError(reason);
}

NcclCommunicator::Stage NcclCommunicator::query(GpuApi::Event event, const CallRecord& record) {
  const int result = gpu().event_query(event);
  if (result == GpuApi::kSuccess) {
    // Ending the communicator also ends its kernels: then what they have written is nothing.
    if (!failure().empty()) throw_failure(record);
    return Stage::done;
  }
  gpu().check(result == GpuApi::kNotReady ? GpuApi::kSuccess : result, "EventQuery");
  std::string trouble;
  {
    std::lock_guard lock(comm_mutex_);
    if (comm_ != nullptr) {
      int state = NcclApi::kSuccess;
      const int asked = nccl().comm_get_async_error(comm_, &state);
      if (asked != NcclApi::kSuccess) state = asked;
      if (state != NcclApi::kSuccess && state != NcclApi::kInProgress) trouble = error_text(state, "NCCL");
    }
  }
  if (!trouble.empty()) abort(fmt::format("{}: {}", describe_call(record), trouble));
  look_for_failure_of_peers();
  if (!failure().empty()) throw_failure(record);
  return Stage::running;
}

void NcclCommunicator::look_for_failure_of_peers() {
  const int64_t now = Clock::now().time_since_epoch().count();
  int64_t next = next_look_.load();
  if (now < next || !next_look_.compare_exchange_strong(next, now + std::chrono::nanoseconds(kLookInterval).count()))
    return;
  std::string reason;
  try {
    if (!watch_->check({failed_key()})) return;
    reason = watch_->get(failed_key(), milliseconds(1000));
  } catch (const EnvironmentError&) {
    return;  // without a store, deadlines still hold
  }
  end_comm(reason);
}

void NcclCommunicator::throw_failure(const CallRecord& record) const {
  const std::string reason = failure();
  const std::string call = describe_call(record);
  throw PeerError(reason.starts_with(call) ? reason : fmt::format("{}: the group has failed: {}", call, reason));
}

void NcclCommunicator::end_comm(const std::string& reason) {
  std::lock_guard lock(comm_mutex_);
  if (failure_.empty()) failure_ = reason;
  if (comm_ != nullptr) nccl().comm_abort(std::exchange(comm_, nullptr));
}

void NcclCommunicator::abort(std::string_view reason) {
  if (!failure().empty()) return;
  end_comm(std::string(reason));
  try {
    watch_->set(failed_key(), reason);
  } catch (const EnvironmentError&) {
    // The others have their deadlines.
  }
  if (options_.recorder != nullptr) options_.recorder->dump_on_failure(*options_.flight_group, reason);
}

std::string NcclCommunicator::failure() const {
  std::lock_guard lock(comm_mutex_);
  return failure_;
}

}  // namespace tutti::comm
