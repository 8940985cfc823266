#include <fmt/format.h>

#include <algorithm>

#include "tutti/diagnose/diagnosis_case.h"

namespace tutti::comm::detail {

using Kind = Finding::Kind;

namespace {

std::string differing_field(const FlightEntry& a, const FlightEntry& b) {
  if (a.name != b.name) return "operations";
  if (a.reduce_op != b.reduce_op) return "reduce ops";
  if (a.root != b.root) return "roots";
  if (a.tensors != b.tensors) return "numbers of tensors";
  if (a.input_dtypes != b.input_dtypes) return "dtypes";
  if (a.same_sizes != b.same_sizes) return "kinds of sizes (equal and uneven)";
  // Ranks of gathers and scatters differ in what they hold: only the described tensor is comparable, and it is the
  // first on the side that all ranks have.
  if (a.same_sizes && !a.call.empty() && !b.call.empty() && a.call != b.call) return "sizes";
  if (a.same_sizes && a.call.empty() && a.input_sizes != b.input_sizes) return "sizes";
  if (a.splits != b.splits) return a.tensors > 1 ? "splits or sizes of further tensors" : "plans (agreement keys)";
  return "";
}

// What a rank that did not come is doing.
std::string whereabouts(const Case& all, const Group& group, int rank, int64_t sequence) {
  if (all.without_dump.contains(rank)) return fmt::format("rank {} gave no dump", rank);
  const auto member = group.members.find(rank);
  std::string text;
  if (member == group.members.end() || member->second.enqueued == 0) {
    text = fmt::format("rank {} has not called any collective of the group", rank);
  } else if (member->second.completed >= member->second.enqueued) {
    text = fmt::format("rank {} finished #{} and has not joined", rank, member->second.completed);
  } else {
    text = fmt::format("rank {} is at #{} and has not joined #{}", rank, member->second.enqueued, sequence);
  }
  for (const auto& [name, other] : all.groups) {
    const auto there = other.members.find(rank);
    if (name == group.name || there == other.members.end() || there->second.first_open == nullptr) continue;
    text += fmt::format(": it waits in {}", numbered(*there->second.first_open));
    break;
  }
  return text;
}

}  // namespace

void find_mismatch(const Group& group, std::vector<Finding>& findings) {
  std::map<int64_t, std::map<int, const FlightEntry*>> calls;
  for (const auto& [rank, member] : group.members) {
    for (const auto& [sequence, entry] : member.calls) calls[sequence][rank] = entry;
  }
  for (const auto& [sequence, by_rank] : calls) {
    const auto& [first_rank, first] = *by_rank.begin();
    // Refused everywhere and the group went on: not what holds it up.
    if (std::all_of(by_rank.begin(), by_rank.end(), [&, at = sequence](const auto& rank_and_call) {
          return rank_and_call.second->state == FlightState::failed &&
                 group.members.at(rank_and_call.first).completed > at;
        })) {
      continue;
    }
    for (const auto& [rank, entry] : by_rank) {
      const std::string field = differing_field(*first, *entry);
      if (field.empty()) continue;
      // Who sides with whom: calls alike in text are alike.
      std::map<std::string, std::vector<int>> camps;
      for (const auto& [r, e] : by_rank) camps[call_text(*e)].push_back(r);
      std::string sides;
      if (camps.size() == 1) {
        sides =
            fmt::format("rank {} and rank {} called {} with different {}", first_rank, rank, call_text(*first), field);
      } else {
        for (const auto& [call, ranks] : camps)
          sides += fmt::format("{}{} called {}", sides.empty() ? "" : ", ", describe_ranks(ranks), call);
      }
      Finding finding{Kind::mismatch, group.name, sequence, call_text(*first), field, {}, {}, ""};
      for (const auto& [r, e] : by_rank) {
        if (is_open(*e)) finding.waiting.push_back(r);
      }
      finding.text =
          fmt::format("the {} of collective #{} of group '{}' differ: {}", field, sequence, group.name, sides);
      findings.push_back(std::move(finding));
      return;
    }
  }
}

void find_waiting(const Case& all, const Group& group, std::vector<Finding>& findings) {
  const FlightEntry* open = nullptr;
  for (const auto& [rank, member] : group.members) {
    if (member.first_open != nullptr && (open == nullptr || member.first_open->sequence < open->sequence))
      open = member.first_open;
  }
  if (open == nullptr) return;
  Finding finding{Kind::under_way, group.name, open->sequence, call_text(*open), "", {}, {}, ""};
  std::vector<int> done;
  const std::vector<int>* ranks = &group.ranks;
  std::vector<int> known;
  if (ranks->empty()) {
    for (const auto& [rank, member] : group.members) known.push_back(rank);
    ranks = &known;
  }
  std::vector<std::string> absent;
  for (const int rank : *ranks) {
    const auto member = group.members.find(rank);
    const bool came = member != group.members.end() && member->second.enqueued >= open->sequence;
    if (!came) {
      finding.missing.push_back(rank);
      continue;
    }
    const auto call = member->second.calls.find(open->sequence);
    const bool waits = call != member->second.calls.end() && is_open(*call->second);
    (waits ? finding.waiting : done).push_back(rank);
  }
  for (auto* list : {&finding.waiting, &finding.missing, &done}) std::sort(list->begin(), list->end());
  const char* are = finding.waiting.size() == 1 ? "is" : "are";
  if (!finding.missing.empty()) {
    finding.kind = Kind::missing;
    for (const int rank : finding.missing) absent.push_back(whereabouts(all, group, rank, open->sequence));
    constexpr size_t kShown = 8;
    const size_t more = absent.size() > kShown ? absent.size() - kShown : 0;
    absent.resize(absent.size() - more);
    finding.text = fmt::format("{} {} waiting in {}, {}{}", describe_ranks(finding.waiting), are, numbered(*open),
                               fmt::join(absent, ", "), more ? fmt::format(", and {} more have not joined", more) : "");
  } else if (!done.empty()) {
    finding.kind = Kind::late;
    finding.text = fmt::format(
        "all ranks came to {}; it has ended on {} and not on {}, which {} still at it: look whether {} alive and "
        "moving data",
        numbered(*open), describe_ranks(done), describe_ranks(finding.waiting), are,
        finding.waiting.size() == 1 ? "it is" : "they are");
  } else {
    finding.text = fmt::format(
        "all ranks came to {} and it has ended on none: it moves data, or what moves it is stuck", numbered(*open));
  }
  findings.push_back(std::move(finding));
}

void find_failed(const Group& group, std::vector<Finding>& findings) {
  const FlightEntry* first = nullptr;
  std::vector<int> ranks;
  for (const auto& [rank, member] : group.members) {
    for (const auto& [sequence, entry] : member.calls) {
      if (entry->state != FlightState::failed || member.completed > sequence) continue;
      if (first == nullptr || sequence < first->sequence) {
        first = entry;
        ranks.clear();
      }
      if (sequence == first->sequence) ranks.push_back(rank);
      break;
    }
  }
  if (first == nullptr) return;
  std::string reason;
  for (const int rank : ranks) {
    std::string why = group.members.at(rank).dump->reason;
    // One file has one reason: that of the group that failed last.
    const bool of_another = why.find("group '") != std::string::npos &&
                            why.find(fmt::format("group '{}'", group.name)) == std::string::npos;
    if (!reason.empty() || why.empty() || why == "SIGUSR1" || of_another) continue;
    if (why.ends_with('.')) why.pop_back();  // the sentence goes on
    reason = fmt::format("; rank {} says: {}", rank, why);
  }
  std::vector<std::string> behind;
  std::vector<int> missing;
  for (const auto& [rank, member] : group.members) {
    if (member.enqueued >= first->sequence) continue;
    missing.push_back(rank);
    behind.push_back(fmt::format("rank {} had not joined it", rank));
  }
  const std::string text = fmt::format("{} failed on {}{}{}{}", numbered(*first), describe_ranks(ranks),
                                       behind.empty() ? "" : ", ", fmt::join(behind, ", "), reason);
  findings.push_back({Kind::failed, group.name, first->sequence, call_text(*first), "", ranks, missing, text});
}

void find_messages(const Case& all, const Group& group, std::vector<Finding>& findings) {
  for (const auto& [rank, member] : group.members) {
    for (const FlightEntry* e : member.messages) {
      const bool is_send = e->name.find("recv") == std::string::npos;
      if (e->root < 0 || e->root >= static_cast<int64_t>(group.ranks.size())) continue;
      const int peer = group.ranks[static_cast<size_t>(e->root)];
      const char* verb = is_send ? "sends to" : "receives from";
      const std::string what = fmt::format("rank {} {} rank {} in group '{}' ({}, message #{})", rank, verb, peer,
                                           group.name, call_text(*e), e->sequence);
      std::string text;
      const auto other = group.members.find(peer);
      if (all.without_dump.contains(peer)) {
        text = fmt::format("{} and waits; rank {} gave no dump", what, peer);
      } else if (other == group.members.end()) {
        text = fmt::format("{} and waits; rank {} has no record of the group", what, peer);
      } else {
        const FlightEntry* wrong_size = nullptr;
        bool answered = false;
        for (const FlightEntry* o : other->second.messages) {
          const bool facing = o->root >= 0 && o->root < static_cast<int64_t>(group.ranks.size()) &&
                              group.ranks[static_cast<size_t>(o->root)] == rank;
          const bool other_sends = o->name.find("recv") == std::string::npos;
          if (other_sends == is_send || (o->root >= 0 && !facing) || o->tag != e->tag) continue;
          answered = true;
          if (o->input_sizes != e->input_sizes || o->input_dtypes != e->input_dtypes) wrong_size = o;
        }
        if (answered && wrong_size == nullptr) continue;
        if (wrong_size != nullptr) {
          if (!is_send) continue;  // said once, from the sender's side
          text = fmt::format("{}, and rank {} expects {}: the messages differ", what, peer, call_text(*wrong_size));
        } else {
          text = fmt::format("{} and waits; rank {} has no {} with tag {} under way", what, peer,
                             is_send ? "receive" : "send", e->tag);
          for (const auto& [name, elsewhere] : all.groups) {
            const auto there = elsewhere.members.find(peer);
            if (there == elsewhere.members.end() || there->second.first_open == nullptr) continue;
            text += fmt::format(": it waits in {}", numbered(*there->second.first_open));
            break;
          }
        }
      }
      findings.push_back({Kind::message, group.name, e->sequence, call_text(*e), "", {rank}, {peer}, std::move(text)});
    }
  }
}

}  // namespace tutti::comm::detail
