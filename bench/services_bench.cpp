#include "bench/services_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <latch>
#include <memory>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "tutti/comm/groups.h"
#include "tutti/core/error.h"
#include "tutti/diagnose/flight_recorder.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 5;
constexpr std::chrono::seconds kPatience{60};
constexpr const char* kKey = "the job key of the benchmarks of services";  // any of a legal length

void report_timing(const Report& report, const std::string& service, int64_t count, const std::string& of,
                   const Timing& time) {
  report(
      {.service = service, .count = count, .of = of, .min_ns = time.min_us * 1e3, .median_ns = time.median_us * 1e3});
}

ServiceResult of_runs(const std::string& service, int64_t count, const std::string& of, std::vector<double> ns) {
  std::sort(ns.begin(), ns.end());
  return {.service = service, .count = count, .of = of, .min_ns = ns.front(), .median_ns = ns[ns.size() / 2]};
}

double ns_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::nano>(end - begin).count();
}

void allow_sockets(int clients) {
  const rlim_t needed = 2 * static_cast<rlim_t>(clients) + 100;  // both ends are here
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  TUTTI_CHECK_ENV(limit.rlim_max >= needed,
                  "{} clients need {} descriptors; this process may have {}; raise the limit with ulimit -Hn, or take "
                  "fewer --clients",
                  clients, needed, limit.rlim_max);
  limit.rlim_cur = std::max(limit.rlim_cur, needed);
  setrlimit(RLIMIT_NOFILE, &limit);
}

struct Meeting {
  double connect_ns, barrier_ns;
};

Meeting meet(int clients) {
  const auto server = comm::serve_store({.bind_address = "127.0.0.1", .job_key = kKey});
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto note = [&] {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::current_exception();
    failed = true;
  };
  std::latch connected(clients);
  const auto client = [&] {
    std::shared_ptr<comm::Store> store;
    try {
      store = comm::connect_store({.port = server->port(), .timeout = kPatience, .job_key = kKey});
    } catch (...) {
      note();
    }
    connected.arrive_and_wait();
    if (failed) return;
    try {
      store->barrier("all", clients);
    } catch (...) {
      note();
    }
  };
  const auto begin = Clock::now();
  Clock::time_point all_connected;
  {
    std::vector<std::jthread> threads;
    try {
      while (static_cast<int>(threads.size()) < clients) threads.emplace_back(client);
    } catch (const std::system_error&) {
      note();
      connected.count_down(clients - static_cast<int>(threads.size()));
    }
    connected.wait();
    all_connected = Clock::now();
  }
  if (failure) std::rethrow_exception(failure);
  return {ns_between(begin, all_connected), ns_between(all_connected, Clock::now())};
}

}  // namespace

void bench_recorder(const Report& report) {
  comm::FlightRecorder recorder({.rank = 0, .world_size = 1});
  comm::FlightGroup& group = recorder.add_group("0", "bench", {0});
  comm::CallRecord record{.kind = comm::CollectiveKind::all_reduce};
  record.describe_tensor(DType::f32, {1024});
  const auto call = [&](bool took_time) {
    ++record.sequence;
    recorder.ended(recorder.begin(group, record, 4096, 4096), comm::FlightState::completed, took_time);
  };
  report_timing(report, "recorder_at_once", 1, "calls", measure([&] { call(false); }));
  report_timing(report, "recorder_taking_time", 1, "calls", measure([&] {
                  ++record.sequence;
                  const uint64_t id = recorder.enqueue(group, record, 4096, 4096);
                  recorder.started(id);
                  recorder.ended(id, comm::FlightState::completed);
                }));
  const comm::FlightDump dump = recorder.snapshot("bench");
  TUTTI_CHECK_EQ(dump.entries.back().sequence, record.sequence, "the recorder's last call is not the last one made");
}

void bench_store(const Report& report) {
  const auto server = comm::serve_store({.bind_address = "127.0.0.1", .job_key = kKey});
  const auto store = comm::connect_store({.port = server->port(), .timeout = kPatience, .job_key = kKey});
  for (const int64_t bytes : {int64_t{64}, int64_t{1} << 20}) {
    const std::string value(static_cast<size_t>(bytes), 'v');
    report_timing(report, "store_set", bytes, "bytes", measure([&] { store->set("key", value); }));
    report_timing(report, "store_get", bytes, "bytes", measure([&] { store->get("key"); }));
    TUTTI_CHECK_ENV(store->get("key") == value, "the store at {} gave another value than was set", store->address());
  }
}

void bench_store_clients(int clients, const Report& report) {
  allow_sockets(clients);
  std::vector<double> connect, barrier;
  for (int run = 0; run < kRuns; ++run) {
    const Meeting meeting = meet(clients);
    connect.push_back(meeting.connect_ns);
    barrier.push_back(meeting.barrier_ns);
  }
  report(of_runs("store_connect", clients, "clients", connect));
  report(of_runs("store_barrier", clients, "clients", barrier));
}

void bench_new_group(comm::ProcessGroup& world, int groups, const Report& report) {
  std::vector<int> everyone(static_cast<size_t>(world.size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  std::vector<double> runs;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<std::shared_ptr<comm::ProcessGroup>> made;
    world.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < groups; ++i) made.push_back(comm::new_group(everyone));
    world.barrier();
    runs.push_back(ns_between(begin, Clock::now()));
    for (const auto& group : made) {
      int64_t one = 1;
      group->all_reduce_values<int64_t>({&one, 1});
      TUTTI_CHECK_EQ(one, int64_t{world.size()}, "the sum over a new group is wrong");
    }
  }
  ServiceResult result = of_runs("new_group", groups, "groups", runs);
  result.ranks = world.size();
  if (world.rank() == 0) report(result);
}

}  // namespace tutti::bench
