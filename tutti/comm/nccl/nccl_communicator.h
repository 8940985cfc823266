// NcclCommunicator: one communicator of NCCL, its stream, and its outstanding calls.
//
// The communicator is non-blocking, so that every wait has a deadline and abort() can end it. Calls are enqueued on a
// separate stream, after the work on the caller's stream; an event after each call tells when it has ended. NCCL does
// not propagate an abort to other ranks: the reason is put into the store, which waiting ranks check from time to time.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/comm/backend.h"
#include "tutti/comm/nccl/gpu_api.h"
#include "tutti/comm/nccl/nccl_api.h"
#include "tutti/comm/transport.h"
#include "tutti/diagnose/flight_recorder.h"
#include "tutti/job/store/store.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::comm {

struct NcclOptions {
  std::string group;             // its name; unique in the store
  std::shared_ptr<Store> store;  // all ranks see the same one
  int rank = 0;
  int size = 1;
  Device device = {DeviceKind::cuda, 0};
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of calls that have none of their own, and of joining
  // Answer can() and refuse calls as the numerics contract asks (docs/comm.md, "NCCL").
  bool strict_numerics = false;
  // The caller's stream: calls wait for what it holds. Absent: the device's default stream.
  std::function<GpuApi::Stream()> current_stream = {};
  // Where calls are recorded; both or neither.
  FlightRecorder* recorder = nullptr;
  FlightGroup* flight_group = nullptr;
  // Absent: opened.
  std::shared_ptr<const NcclApi> nccl = {};
  std::shared_ptr<const GpuApi> gpu = {};
};

// May be used by any thread; calls of several threads are serialized.
class NcclCommunicator : public std::enable_shared_from_this<NcclCommunicator> {
 public:
  // Meets the other ranks through the store. TimeoutError when they do not come in time, EnvironmentError for what
  // libraries and driver report.
  explicit NcclCommunicator(NcclOptions options);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  const NcclOptions& options() const { return options_; }
  const NcclApi& nccl() const { return *options_.nccl; }
  const GpuApi& gpu() const { return *options_.gpu; }

  // A call makes its calls of NCCL with this, between group_start and group_end. Each result goes through check().
  struct Launch {
    NcclApi::Comm comm;
    NcclApi::Stream stream;
    NcclCommunicator& owner;
    const CallRecord& record;
    void check(int result, const char* function) const;
  };
  // Numbers the call, launches it and returns the Work under way; it holds `tensors`. The last of them, from
  // `first_output` on, are its result.
  Work submit(CallRecord record, FunctionRef<void(const Launch&)> launch, std::vector<Tensor> tensors,
              size_t first_output, const CallOptions& options);

  void abort(std::string_view reason);
  std::string failure() const;
  void set_timeout(std::chrono::milliseconds timeout) { timeout_ms_ = timeout.count(); }
  std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(timeout_ms_); }

 private:
  friend class NcclCall;
  // The device's stage of one call as far as the host can see.
  enum class Stage { running, done };
  Stage query(GpuApi::Event event, const CallRecord& record);
  // Takes the failure over when another rank has put one into the store.
  void look_for_failure_of_peers();
  [[noreturn]] void throw_failure(const CallRecord& record) const;
  // Waits until NCCL has taken in what it was given. The deadline ends the group.
  void settle(Clock::time_point deadline, std::chrono::milliseconds timeout, const std::string& what);
  [[noreturn]] void time_out(const std::string& what, std::chrono::milliseconds timeout);
  std::string describe_call(const CallRecord& record) const;
  std::string error_text(int result, const char* function) const;
  std::string failed_key() const { return "nccl/" + options_.group + "/failed"; }
  void end_comm(const std::string& reason);

  NcclOptions options_;
  std::shared_ptr<Store> watch_;  // a handle of its own: looking must not wait for others' calls
  std::atomic<int64_t> timeout_ms_;
  std::mutex submit_mutex_;        // one call after another
  mutable std::mutex comm_mutex_;  // each call of NCCL; taken behind submit_mutex_
  NcclApi::Comm comm_ = nullptr;   // null once it has ended
  std::string failure_;
  GpuApi::Stream stream_ = nullptr;
  GpuApi::Event before_ = nullptr;  // of the caller's stream
  int64_t collectives_ = 0, messages_ = 0;
  std::atomic<int64_t> next_look_{0};  // ns of Clock
};

}  // namespace tutti::comm
