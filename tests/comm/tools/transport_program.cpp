// One rank of a group over a transport between processes, for tests that start several:
//   transport_program mpi WHAT                       under mpirun
//   transport_program gloo WHAT STORE RANK SIZE      STORE: path of a store file
// Prints what a failing call says; ends with 0 when all went as it should.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string_view>
#include <thread>

#include "tests/comm/support/capability_checks.h"
#include "tests/comm/support/compiled_cases.h"
#include "tests/comm/support/forked_child.h"
#include "tests/comm/support/group_disagreements.h"
#include "tests/comm/support/message_agreement.h"
#include "tests/comm/support/mismatches.h"
#include "tests/comm/support/reduced_nodes.h"
#include "tests/comm/support/refused_calls.h"
#include "tests/comm/support/transport_ranks.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/transport_backend.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/store/file_store.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

int number_of(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  throw EnvironmentError("not started by mpirun");
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// Every pair of ranks makes a group of its own, the others take no part.
void use_groups(const std::string& transport, const GroupSeat& seat) {
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (int a = 0; a < seat.size; ++a) {
      for (int b = a + 1; b < seat.size; ++b) {
        if (seat.rank != a && seat.rank != b) continue;
        GroupSeat pair = seat;
        pair.name = pair.key = fmt::format("pair {} {} {}", a, b, repeat);
        pair.world_ranks = {b, a};  // in another order than in the world
        pair.rank = seat.rank == b ? 0 : 1;
        pair.size = 2;
        const auto t = make_transport(transport, pair);
        exchange_one_block(*t, tensor_call(1, 100'000), 100'000);
      }
    }
  }
}

std::vector<int> everyone(const GroupSeat& seat) {
  std::vector<int> ranks(static_cast<size_t>(seat.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What the tests check over the other transports, with a group as a program gets it.
using Check = void (*)(ProcessGroup&);

void check_can(ProcessGroup& group) { check_capabilities(group, true); }

void check_mismatches(ProcessGroup& group) {
  for (const Mismatch& mismatch : mismatches()) check_mismatch(group, mismatch);
}

void check_disagreements(ProcessGroup& world) {
  for (const Disagreement& d : disagreements()) check_disagreement(world, d);
}

void check_compiled(ProcessGroup& group) {
  for (const functional::CompiledCase& c : functional::compiled_cases()) {
    if (std::find(c.ranks.begin(), c.ranks.end(), group.size()) != c.ranks.end()) c.check(group);
  }
}

Check check_named(std::string_view what) {
  static const std::map<std::string_view, Check> checks = {
      {"can", check_can},
      {"messages", check_message_agreement},
      {"refusals", check_refused_calls},
      {"nodes", check_reduced_nodes},
      {"mismatches", check_mismatches},
      {"compiled", check_compiled},
      {"child", check_forked_child},
  };
  const auto found = checks.find(what);
  return found == checks.end() ? nullptr : found->second;
}

void check(const std::string& transport, const GroupSeat& seat, Check check) {
  const auto group = std::make_shared<ProcessGroup>(seat.name, seat.key, seat.rank, everyone(seat), nullptr);
  group->set_backend(DeviceKind::cpu,
                     std::make_shared<TransportBackend>(make_transport(transport, seat), GroupLabel{seat.name}));
  check(*group);
}

void run(const std::string& transport, std::string_view what, const GroupSeat& seat) {
  if (what == "groups") return use_groups(transport, seat);
  if (what == "world") {
    check_disagreements(*init_process_group({.group = {.name = "0", .transport = transport}}));
    return destroy_process_group();
  }
  if (const Check named = check_named(what)) return check(transport, seat, named);
  const auto t = make_transport(transport, seat);
  if (what == "rounds") {
    check_rounds(*t, 5, 20, 3'000'000);
    check_messages(*t, 6);
  } else if (what == "mismatch") {
    try {
      exchange_one_block(*t, tensor_call(1, 8 + seat.rank), 8 + seat.rank);
      throw std::runtime_error("no error");
    } catch (const UsageError& error) {
      std::printf("rank %d: %s\n", seat.rank, error.what());
    }
    exchange_one_block(*t, tensor_call(2, 8), 8);
  } else if (what == "idle") {
    exchange_one_block(*t, barrier_call(1), 0);
    double before = cpu_seconds();
    std::this_thread::sleep_for(1s);
    require(cpu_seconds() - before < 0.25,
            fmt::format("{} s of processor time in a second of rest", cpu_seconds() - before));
    exchange_one_block(*t, barrier_call(2), 0);
    // The others wait a second for rank 0.
    before = cpu_seconds();
    if (seat.rank == 0) std::this_thread::sleep_for(1s);
    exchange_one_block(*t, barrier_call(3), 0);
    require(cpu_seconds() - before < 0.5,
            fmt::format("{} s of processor time in a second of waiting", cpu_seconds() - before));
  } else {
    throw UsageError(fmt::format("unknown: {}", what));
  }
}

int program(int argc, char** argv) {
  require(argc >= 3, "transport_program TRANSPORT WHAT [STORE RANK SIZE]");
  GroupSeat seat;
  seat.name = seat.key = "test";
  if (argc == 6) {
    seat.store = std::make_shared<FileStore>(argv[3]);
    seat.rank = std::atoi(argv[4]);
    seat.size = std::atoi(argv[5]);
  } else {
    seat.rank = number_of({"OMPI_COMM_WORLD_RANK", "PMI_RANK"});
    seat.size = number_of({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  }
  seat.deadline = Clock::now() + 30s;
  run(argv[1], argv[2], seat);
  return 0;
}

}  // namespace
}  // namespace tutti::comm

int main(int argc, char** argv) {
  try {
    return tutti::comm::program(argc, argv);
  } catch (const std::exception& error) {
    std::printf("failed: %s\n", error.what());
    return 1;
  }
}
