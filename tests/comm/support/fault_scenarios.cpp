// The scenarios. Every rank runs the function; ranks meet in the world and in its store only.
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <thread>

#include "tests/comm/support/fault_ranks.h"
#include "tests/comm/support/sample_calls.h"
#include "tutti/comm/groups.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using Kind = CollectiveKind;

const std::vector<int> kEveryone{0, 1, 2, 3};

std::string now() { return fmt::format("{}", std::chrono::steady_clock::now().time_since_epoch().count()); }

void die(const FaultRank& rank) {
  rank.say("died", now());
  raise(SIGKILL);
}

// ---- "death": KIND COUNT VICTIM MICROSECONDS

// All make the call again and again until it throws; the victim is killed meanwhile.
void death(FaultRank& rank) {
  int kind = 0, victim = 0, delay = 0;
  int64_t count = 0;
  std::istringstream(rank.argument) >> kind >> count >> victim >> delay;
  const SampleCall call =
      sample_call(rank.world, static_cast<Kind>(kind), {.count = count, .root = rank.world.size() - 1});
  std::jthread killer;
  // The window from the death to the error is the transport's: kernels that add are compiled here, and connections
  // made.
  call.make();
  rank.say_outcome("call", [&] {
    rank.world.barrier();  // the victim must not die while others still make the group; a rank that is late here hears
                           // of the death
    if (rank.world.rank() == victim) {
      killer = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(delay));
        die(rank);
      });
    }
    while (true) call.make();
  });
  rank.say("ended", now());
}

// ---- "leave": VICTIM

// A rank lets go of its groups in good order; the others still wait for it.
void leave(FaultRank& rank) {
  const int victim = std::stoi(rank.argument);
  const Tensor t = Tensor::of<float>({1, 2});
  rank.say_outcome("call", [&] {
    rank.world.barrier();  // a rank that is late in it may hear of the leave here, from one that is further
    if (rank.world.rank() == victim) return;
    while (true) rank.world.all_reduce(t);
  });
  if (rank.world.rank() == victim) return rank.say("died", now());
  rank.say("ended", now());
}

// ---- "deadlines"

struct DeadlineRow {
  std::string name;
  milliseconds timeout;
  std::function<void(ProcessGroup&, milliseconds)> call;
};

// Messages have rows of their own, and a monitored barrier does not go by the timeout of the group.
bool waits_for_all(Kind kind) { return kind != Kind::send && kind != Kind::recv && kind != Kind::monitored_barrier; }

void add_kinds(std::vector<DeadlineRow>& rows) {
  for (const Kind kind : all_kinds()) {
    if (!waits_for_all(kind)) continue;
    rows.push_back({std::string(name_of(kind)), 100ms, [kind](ProcessGroup& g, milliseconds t) {
                      g.set_timeout(t);
                      sample_call(g, kind).make();
                    }});
  }
}

std::vector<DeadlineRow> make_deadline_rows() {
  std::vector<DeadlineRow> rows = {
      {"a longer all_reduce", 600ms,
       [](ProcessGroup& g, milliseconds t) { g.all_reduce(Tensor::of<float>({1, 2}), {}, {.timeout = t}); }},
      {"recv", 100ms,
       [](ProcessGroup& g, milliseconds t) { g.recv(Tensor::of<float>({1, 2}), kFaultRanks - 1, 0, {.timeout = t}); }},
      {"send", 100ms,
       [](ProcessGroup& g, milliseconds t) { g.send(Tensor::empty({4 << 20}), kFaultRanks - 1, 0, {.timeout = t}); }},
      {"batch_isend_irecv", 100ms,
       [](ProcessGroup& g, milliseconds t) {
         const PointToPoint receive{PointToPoint::Kind::irecv, Tensor::of<float>({1, 2}), kFaultRanks - 1, 0};
         g.batch_isend_irecv({&receive, 1}, {.timeout = t});
       }},
      {"monitored_barrier", 100ms, [](ProcessGroup& g, milliseconds t) { g.monitored_barrier(t); }},
      {"monitored_barrier of all", 600ms, [](ProcessGroup& g, milliseconds t) { g.monitored_barrier(t, true); }},
      // Groups of some transports are made by each rank on its own; there it is the first call that waits.
      // Lists in other orders: the last rank never makes these groups, and the others count theirs by list.
      {"new_group", 600ms, [](ProcessGroup&, milliseconds t) { new_group({3, 2, 1, 0}, {.timeout = t})->barrier(); }},
      {"merge", 600ms, [](ProcessGroup&, milliseconds t) { merge({1, 0}, {3, 2}, {.timeout = t})->barrier(); }},
      {"split", 600ms, [](ProcessGroup& g, milliseconds t) { g.split(kEveryone, {.timeout = t})->barrier(); }},
      {"shrink", 600ms, [](ProcessGroup& g, milliseconds t) { g.shrink({}, {.timeout = t}); }},
  };
  add_kinds(rows);
  return rows;
}

const std::vector<DeadlineRow>& deadline_rows() {
  static const std::vector<DeadlineRow> rows = make_deadline_rows();
  return rows;
}

// The last rank does not come. On a machine that does much else a rank may get its turn late whatever the code does. So
// a thread that only sleeps until the deadline tells how late it was woken (`<row>.sleeper`), which is allowed in
// addition, and a row that was late all the same is played again, up to so many times.
constexpr int kAttempts = 12;

void meet_deadlines(FaultRank& rank) {
  const bool is_late_one = rank.world.rank() == kFaultRanks - 1;
  for (const DeadlineRow& row : deadline_rows()) {
    const double limit = static_cast<double>(row.timeout.count());
    for (int attempt = 1; attempt <= kAttempts; ++attempt) {
      const auto group = new_group(kEveryone);
      group->barrier();
      int64_t was_late = 0;
      if (!is_late_one) {
        const auto start = std::chrono::steady_clock::now();
        const auto since_start = [&] {
          return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
        };
        double slept = 0;
        std::thread sleeper([&] {
          std::this_thread::sleep_until(start + row.timeout);
          slept = since_start();
        });
        rank.say_outcome(row.name, [&] { row.call(*group, row.timeout); });
        const double took = since_start();
        sleeper.join();
        rank.say(row.name + ".sleeper", fmt::format("{}", slept));
        was_late = took > slept + std::max(limit / 10, 50.0) ? 1 : 0;
      }
      rank.world.all_reduce_values<int64_t>({&was_late, 1}, ReduceKind::max);
      rank.say(row.name + ".attempts", fmt::format("{}", attempt));
      if (was_late == 0) break;
    }
  }
}

// ---- "drop": groups are made, used and dropped

struct Holdings {
  int64_t descriptors = 0;
  int64_t memory = 0;  // bytes that malloc has given out
  int64_t keys = 0;
};

int64_t allocated_bytes() {
  char* text = nullptr;
  size_t size = 0;
  FILE* file = open_memstream(&text, &size);
  malloc_info(0, file);
  fclose(file);
  // The last of each kind is the sum over all arenas.
  const std::string_view info(text, size);
  const auto last = [&](std::string_view type) {
    const size_t at = info.rfind(type);
    return at == std::string_view::npos ? 0 : std::stoll(std::string(info.substr(info.find("size=\"", at) + 6, 20)));
  };
  const int64_t bytes = last("<system type=\"current\"") + last("<total type=\"mmap\"") - last("<total type=\"fast\"") -
                        last("<total type=\"rest\"");
  free(text);
  return bytes;
}

int64_t open_descriptors() {
  namespace fs = std::filesystem;
  return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
}

void make_and_drop(ProcessGroup& world, int groups) {
  for (int i = 0; i < groups; ++i) {
    const auto group = i % 2 == 0 ? new_group(kEveryone) : world.split(kEveryone);
    int64_t value = 1;
    group->all_reduce_values<int64_t>({&value, 1});
    TUTTI_CHECK(value == kFaultRanks, "the sum is {}", value);
  }
}

Holdings look(ProcessGroup& world) {
  world.barrier();
  const Holdings holdings{open_descriptors(), allocated_bytes(), world.store()->num_keys()};
  world.barrier();
  return holdings;
}

void drop(FaultRank& rank) {
  const int groups = std::stoi(rank.argument);
  make_and_drop(rank.world, groups);  // what is made once, and rings that fill up
  const Holdings before = look(rank.world);
  make_and_drop(rank.world, groups);
  Holdings after = look(rank.world);
  // Connections that a busy peer has not heard out are closed a little later, by the next group.
  for (int i = 0; i < 20; ++i) {
    int64_t more = after.descriptors - before.descriptors;
    rank.world.all_reduce_values<int64_t>({&more, 1}, ReduceKind::max);
    if (more <= kWatchedPeers) break;
    make_and_drop(rank.world, 1);
    after = look(rank.world);
  }
  rank.say("descriptors", fmt::format("{}", after.descriptors - before.descriptors));
  rank.say("memory", fmt::format("{}", after.memory - before.memory));
  rank.say("keys", fmt::format("{}", after.keys - before.keys));
}

// ---- "monitored": barriers that fail do not disturb those that follow

void monitored(FaultRank& rank) {
  ProcessGroup& world = rank.world;
  Store& store = *world.store();
  for (const int late : {2, 0}) {
    const std::string key = fmt::format("late {}", late), row = key;
    if (world.rank() == late) {
      store.wait({key + "/complete"}, 60s);
      rank.say_outcome(row, [&] { world.monitored_barrier(late == 0 ? milliseconds(20s) : 150ms); });
    } else {
      rank.say_outcome(row, [&] { world.monitored_barrier(150ms, true); });
      if (store.add(key, 1) == kFaultRanks - 1) store.set(key + "/complete", "1");
    }
    rank.say_outcome(row + ", again", [&] { world.monitored_barrier(20s); });
  }
  int64_t sum = 1;
  world.all_reduce_values<int64_t>({&sum, 1});
  rank.say("sum", fmt::format("{}", sum));
}

// ---- "shrink": the survivors of a death go on

int64_t sum_of_world_ranks(ProcessGroup& group) {
  int64_t value = group.world_rank();
  group.all_reduce_values<int64_t>({&value, 1});
  return value;
}

void shrink(FaultRank& rank) {
  ProcessGroup& world = rank.world;
  rank.say_outcome("death", [&] {
    world.barrier();  // a rank that is late in it may hear of the death here
    if (world.rank() == 1) die(rank);
    world.barrier();
  });
  const auto left = world.shrink({1}, {.timeout = 60s});
  rank.say("three", fmt::format("{} {}", left->rank(), sum_of_world_ranks(*left)));
  left->barrier();
  if (world.rank() == 2) return;
  // And once more, by choice; ranks are those of the group that shrinks.
  const auto pair = left->shrink({1}, {.name = "pair", .timeout = 60s});
  rank.say("two", fmt::format("{} {}", pair->name(), sum_of_world_ranks(*pair)));
}

// ---- "mute": sends that nobody waits for, to a rank that has died

void mute(FaultRank& rank) {
  ProcessGroup& world = rank.world;
  const Tensor word = Tensor::of<int64_t>({1});
  // So few and so small that every transport takes them at once.
  rank.say_outcome("call", [&] {
    world.barrier();  // a rank that is late in it may hear of the death here
    if (world.rank() == 2) die(rank);
    for (int i = 0; i < 400; ++i) {
      world.send(word, 2, 5);
      std::this_thread::sleep_for(20ms);
    }
  });
  rank.say("ended", now());
}

}  // namespace

std::vector<Deadline> deadlines() {
  std::vector<Deadline> list;
  for (const DeadlineRow& row : deadline_rows()) list.push_back({row.name, static_cast<double>(row.timeout.count())});
  return list;
}

void play(const std::string& scenario, FaultRank& rank) {
  static const std::map<std::string, void (*)(FaultRank&)> scenarios = {
      {"death", death}, {"leave", leave},  {"deadlines", meet_deadlines}, {"drop", drop}, {"monitored", monitored},
      {"mute", mute},   {"shrink", shrink}};
  std::vector<std::string> names;
  for (const auto& [name, function] : scenarios) names.push_back(name);
  const auto found = scenarios.find(scenario);
  if (found == scenarios.end()) throw UsageError(unknown_name_message("scenario", scenario, names));
  found->second(rank);
}

}  // namespace tutti::comm
