#include "tutti/job/rendezvous/launch_variables.h"

#include <array>
#include <charconv>
#include <cstdlib>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

struct Family {
  const char* launcher;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;  // nullptr = it has none
  // Set side by side with the family before it, and must agree with it.
  bool goes_with_previous = false;
  // A batch script without ranks has some of the variables.
  bool may_be_incomplete = false;
};

constexpr std::array<Family, 5> kFamilies = {{
    {"Tutti", "TUTTI_RANK", "TUTTI_WORLD_SIZE", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_WORLD_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", true},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", true},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, false, true},
}};

std::optional<int> read_number(const char* name, int smallest) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  TUTTI_CHECK(error == std::errc() && end == view.data() + view.size() && value >= smallest,
              "environment variable {} is '{}'; expected a whole number, {} or more", name, view, smallest);
  return value;
}

std::optional<LaunchPlace> read_family(const Family& family) {
  const std::optional<int> rank = read_number(family.rank, 0);
  const std::optional<int> size = read_number(family.world_size, 1);
  if (!rank && !size) return std::nullopt;
  if (family.may_be_incomplete && (!rank || !size)) return std::nullopt;
  TUTTI_CHECK(rank && size, "{} is set but {} is not; set both, or neither", rank ? family.rank : family.world_size,
              rank ? family.world_size : family.rank);
  TUTTI_CHECK(*rank < *size, "{} is {} but {} is {}; ranks count from 0", family.rank, *rank, family.world_size, *size);
  return LaunchPlace{.rank = *rank,
                     .world_size = *size,
                     .local_rank = read_number(family.local_rank, 0),
                     .local_world_size = read_number(family.local_world_size, 1),
                     .launcher = family.launcher};
}

void check_agreement(const Family& a, const LaunchPlace& x, const Family& b, const LaunchPlace& y) {
  const auto same = [&](const char* name, int value, const char* other_name, int other) {
    TUTTI_CHECK(value == other,
                "the environment contradicts itself: {} is {} but {} is {}; unset the variables of one "
                "of the launchers {} and {}",
                name, value, other_name, other, a.launcher, b.launcher);
  };
  same(a.rank, x.rank, b.rank, y.rank);
  same(a.world_size, x.world_size, b.world_size, y.world_size);
  if (x.local_rank && y.local_rank) same(a.local_rank, *x.local_rank, b.local_rank, *y.local_rank);
}

std::string read_text(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

bool is_yes(const char* name) {
  const std::string text = read_text(name);
  const bool yes = text == "1" || text == "True" || text == "true";
  TUTTI_CHECK(yes || text.empty() || text == "0" || text == "False" || text == "false",
              "environment variable {} is '{}'; expected 1 or 0", name, text);
  return yes;
}

std::string find_host(const LaunchPlace& place) {
  if (std::string host = read_text("MASTER_ADDR"); !host.empty()) return host;
  if (place.launcher == "Slurm") {
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
      if (const std::string list = read_text(name); !list.empty()) return slurm_first_host(list);
    }
  }
  TUTTI_CHECK(place.world_size == 1 || place.local_world_size == place.world_size,
              "env://: MASTER_ADDR is not set; set it to the host of rank 0 for all {} ranks", place.world_size);
  return "127.0.0.1";
}

int find_port(const LaunchPlace& place, const char* name) {
  if (const std::optional<int> port = read_number(name, 1)) {
    TUTTI_CHECK(*port <= 65535, "environment variable {} is {}; a port is at most 65535", name, *port);
    return *port;
  }
  const std::optional<int> job = read_number("SLURM_JOB_ID", 0);
  // All ranks of a step make the same number, and steps that run at the same time make different ones.
  if (place.launcher == "Slurm" && job) {
    return 20000 + (*job % 1000 * 10 + read_number("SLURM_STEP_ID", 0).value_or(0) % 10);
  }
  TUTTI_CHECK(place.world_size == 1,
              "env://: MASTER_PORT is not set; set it to a free port of the host of rank 0 for all {} ranks",
              place.world_size);
  return 0;
}

// Which variable has the number of a rank whose launcher starts all ranks on this host and gives them no place to meet.
const char* variable_to_meet_by(const LaunchPlace& place) {
  if (place.world_size == 1 || place.launcher == "Tutti" || place.launcher == "torchrun") return nullptr;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TUTTI_STORE_PORT"}) {
    if (!read_text(name).empty()) return nullptr;
  }
  bool is_one_host = place.local_world_size == place.world_size;
  if (place.launcher == "Slurm")
    is_one_host = read_number("SLURM_STEP_NUM_NODES", 1).value_or(read_number("SLURM_NNODES", 1).value_or(2)) == 1;
  if (!is_one_host) return nullptr;
  for (const Family& family : kFamilies) {
    if (place.launcher == family.launcher) return family.rank;
  }
  return nullptr;
}

}  // namespace

std::optional<LaunchPlace> read_launch_place() {
  std::optional<LaunchPlace> result, previous;
  for (size_t i = 0; i < kFamilies.size(); ++i) {
    const std::optional<LaunchPlace> place = read_family(kFamilies[i]);
    if (place && previous && kFamilies[i].goes_with_previous) {
      check_agreement(kFamilies[i - 1], *previous, kFamilies[i], *place);
    }
    if (!result) {
      result = place;
    } else if (place && previous && kFamilies[i].goes_with_previous) {
      if (!result->local_rank) result->local_rank = place->local_rank;
      if (!result->local_world_size) result->local_world_size = place->local_world_size;
    }
    previous = place;
    // What stands further outside says nothing about this rank.
    const bool pair_is_read = i + 1 == kFamilies.size() || !kFamilies[i + 1].goes_with_previous;
    if (result && pair_is_read) break;
  }
  return result;
}

MeetingPoint read_meeting_point(const LaunchPlace& place) {
  if (const char* variable = variable_to_meet_by(place)) return {.host = "127.0.0.1", .rank_variable = variable};
  const bool has_own_port = !read_text("TUTTI_STORE_PORT").empty(), is_hosted = is_yes("TUTTI_STORE_HOSTED");
  TUTTI_CHECK(has_own_port || is_hosted || !is_yes("TORCHELASTIC_USE_AGENT_STORE"),
              "env://: torchrun serves its own store at {}:{}, which speaks PyTorch's protocol and not Tutti's; set "
              "TUTTI_STORE_PORT to another free port of that host, the same for all {} ranks: "
              "TUTTI_STORE_PORT=29501 torchrun ...",
              find_host(place), find_port(place, "MASTER_PORT"), place.world_size);
  return {.host = find_host(place),
          .port = find_port(place, has_own_port ? "TUTTI_STORE_PORT" : "MASTER_PORT"),
          .is_hosted = is_hosted};
}

std::string slurm_first_host(std::string_view nodelist) {
  std::string host;
  for (size_t i = 0; i < nodelist.size() && nodelist[i] != ','; ++i) {
    if (nodelist[i] != '[') {
      host += nodelist[i];
      continue;
    }
    const size_t close = nodelist.find(']', i);
    TUTTI_CHECK(close != std::string_view::npos, "Slurm's list of hosts '{}' has a bracket that does not close",
                nodelist);
    const std::string_view ranges = nodelist.substr(i + 1, close - i - 1);
    host += ranges.substr(0, ranges.find_first_of(",-"));
    i = close;
  }
  TUTTI_CHECK(!host.empty(), "Slurm's list of hosts '{}' names none", nodelist);
  return host;
}

}  // namespace tutti::comm
