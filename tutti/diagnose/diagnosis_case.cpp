#include "tutti/diagnose/diagnosis_case.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/core/error.h"

namespace tutti::comm::detail {

bool is_open(const FlightEntry& e) { return e.state == FlightState::scheduled || e.state == FlightState::started; }

std::string call_text(const FlightEntry& e) {
  if (!e.call.empty()) return e.call;
  std::string text = e.name + "(";
  if (!e.input_sizes.empty()) {
    text += fmt::format("{} [{}]", e.input_dtypes.empty() ? "?" : e.input_dtypes[0], fmt::join(e.input_sizes[0], ", "));
  }
  return text + ")";
}

std::string numbered(const FlightEntry& e) {
  const std::string call = call_text(e);
  const size_t open = std::min(call.find('('), call.size());
  const std::string arguments = call.substr(open);
  return fmt::format("{} #{} of group '{}'{}{}", e.name, e.sequence, e.group,
                     arguments == "()" || arguments.empty() ? "" : " ", arguments == "()" ? "" : arguments);
}

Case gather_case(std::span<const FlightDump> dumps) {
  TUTTI_CHECK(!dumps.empty(), "no dump to look at; give the files that the flight recorder wrote, one per rank");
  Case all;
  std::map<int, const FlightDump*> by_rank;
  for (const FlightDump& dump : dumps) {
    const int rank = static_cast<int>(dump.rank);
    const auto [entry, fresh] = by_rank.emplace(rank, &dump);
    TUTTI_CHECK(fresh, "two dumps are of rank {}: {} and {}; give one per rank, all of the same run", rank,
                entry->second->file, dump.file);
    all.ranks.push_back(rank);
    for (const FlightGroupStatus& status : dump.groups) {
      Group& group = all.groups[status.name];
      group.name = status.name;
      if (group.ranks.empty()) group.ranks = status.ranks;
      Member& member = group.members[rank];
      member.dump = &dump;
      member.status = &status;
      member.enqueued = std::max<int64_t>(status.enqueued.sequence, 0);
      member.completed = std::max<int64_t>(status.completed.sequence, 0);
    }
    for (const FlightEntry& e : dump.entries) {
      Group& group = all.groups[e.group];
      group.name = e.group;
      Member& member = group.members[rank];
      member.dump = &dump;
      if (e.is_p2p) {
        if (is_open(e)) member.messages.push_back(&e);
        continue;
      }
      member.calls[e.sequence] = &e;
      member.enqueued = std::max(member.enqueued, e.sequence);
      if (e.state == FlightState::completed) member.completed = std::max(member.completed, e.sequence);
    }
  }
  std::sort(all.ranks.begin(), all.ranks.end());
  for (auto& [name, group] : all.groups) {
    for (auto& [rank, member] : group.members) {
      for (const auto& [sequence, entry] : member.calls) {
        if (is_open(*entry)) {
          member.first_open = entry;
          break;
        }
      }
    }
    for (const int rank : group.ranks) {
      if (!by_rank.contains(rank)) all.without_dump.insert(rank);
    }
  }
  int64_t world = 0;
  for (const FlightDump& dump : dumps) world = std::max(world, dump.world_size);
  for (int rank = 0; rank < std::min<int64_t>(world, 1 << 20); ++rank) {
    if (!by_rank.contains(rank)) all.without_dump.insert(rank);
  }
  return all;
}

}  // namespace tutti::comm::detail
