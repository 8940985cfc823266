#include "tutti/diagnose/diagnosis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <set>

#include "tutti/diagnose/diagnosis_case.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::comm {
namespace {

using Kind = Finding::Kind;

// Ranks that wait for each other: a circle through the missing ranks of findings. The findings on it become one.
void find_deadlock(std::vector<Finding>& findings) {
  std::map<int, std::vector<size_t>> waits_in;  // rank -> findings it waits in
  for (size_t f = 0; f < findings.size(); ++f) {
    if (findings[f].kind != Kind::missing) continue;
    for (const int rank : findings[f].waiting) waits_in[rank].push_back(f);
  }
  for (size_t start = 0; start < findings.size(); ++start) {
    if (findings[start].kind != Kind::missing) continue;
    // Breadth first over findings: from one to those in which its missing ranks wait.
    std::map<size_t, std::pair<size_t, int>> from;  // finding -> where it was reached from, through which rank
    std::vector<size_t> queue{start};
    for (size_t q = 0; q < queue.size(); ++q) {
      for (const int rank : findings[queue[q]].missing) {
        for (const size_t next : waits_in[rank]) {
          if (from.contains(next) || next == queue[q]) continue;
          from[next] = {queue[q], rank};
          queue.push_back(next);
        }
      }
      if (from.contains(start)) break;
    }
    if (!from.contains(start)) continue;
    std::vector<size_t> circle;
    for (size_t at = start; circle.empty() || at != start; at = from[at].first) circle.push_back(at);
    std::reverse(circle.begin(), circle.end());
    std::rotate(circle.begin(), std::find(circle.begin(), circle.end(), start), circle.end());
    Finding finding = findings[start];
    finding.kind = Kind::deadlock;
    finding.text = "ranks wait for each other: ";
    std::set<int> waiting;
    for (size_t i = 0; i < circle.size(); ++i) {
      const Finding& part = findings[circle[i]];
      finding.text += (i ? "; " : "") + part.text;
      waiting.insert(part.waiting.begin(), part.waiting.end());
    }
    finding.text += ". All ranks must make the calls of different groups in the same order";
    finding.waiting.assign(waiting.begin(), waiting.end());
    finding.missing.clear();
    std::vector<Finding> rest{std::move(finding)};
    for (size_t f = 0; f < findings.size(); ++f) {
      if (std::find(circle.begin(), circle.end(), f) == circle.end()) rest.push_back(std::move(findings[f]));
    }
    findings = std::move(rest);
    return;
  }
}

// A cause stands before what it causes: a mismatch, a circle, a failure, then groups whose missing ranks wait nowhere.
int precedence(const Finding& finding, const std::set<int>& waiting) {
  switch (finding.kind) {
    case Kind::mismatch:
      return 0;
    case Kind::deadlock:
      return 1;
    case Kind::failed:
      return 2;
    case Kind::missing:
    case Kind::message:
      return std::any_of(finding.missing.begin(), finding.missing.end(), [&](int r) { return waiting.contains(r); })
                 ? 4
                 : 3;
    case Kind::late:
      return 5;
    case Kind::under_way:
      return 6;
  }
  return 7;
}

}  // namespace

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::mismatch:
      return "mismatch";
    case Kind::missing:
      return "missing";
    case Kind::deadlock:
      return "deadlock";
    case Kind::message:
      return "message";
    case Kind::late:
      return "late";
    case Kind::under_way:
      return "under_way";
    case Kind::failed:
      return "failed";
  }
  return "unknown";
}

std::string describe_ranks(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += i ? ", " : "";
    if (end - i <= 2) end = i + 1;
    text += end - i > 1 ? fmt::format("{}-{}", ranks[i], ranks[end - 1]) : std::to_string(ranks[i]);
    i = end;
  }
  return text;
}

Diagnosis diagnose(std::span<const FlightDump> dumps) {
  const detail::Case all = detail::gather_case(dumps);
  Diagnosis diagnosis;
  diagnosis.ranks = all.ranks;
  diagnosis.missing_dumps.assign(all.without_dump.begin(), all.without_dump.end());
  auto& findings = diagnosis.findings;
  for (const auto& [name, group] : all.groups) {
    std::vector<Finding> here;
    detail::find_mismatch(group, here);
    const int64_t mismatch = here.empty() ? 0 : here[0].sequence;
    detail::find_failed(group, here);
    detail::find_waiting(all, group, here);
    // From a mismatch on, everything follows from it.
    std::erase_if(
        here, [&](const Finding& f) { return mismatch != 0 && f.kind != Kind::mismatch && f.sequence >= mismatch; });
    detail::find_messages(all, group, here);
    std::move(here.begin(), here.end(), std::back_inserter(findings));
  }
  find_deadlock(findings);
  std::set<int> waiting;
  for (const Finding& finding : findings) waiting.insert(finding.waiting.begin(), finding.waiting.end());
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding& a, const Finding& b) { return precedence(a, waiting) < precedence(b, waiting); });

  std::string& text = diagnosis.text;
  for (const Finding& finding : findings) {
    std::string sentence = finding.text;
    if (text.empty() && !sentence.empty())
      sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
    text += (text.empty() ? "" : " Also: ") + sentence + ".";
  }
  if (findings.empty()) {
    text = fmt::format("No rank waits for another ({} looked at).", describe_ranks(all.ranks));
  }
  if (!diagnosis.missing_dumps.empty())
    text += fmt::format(" There is no dump of {}.", describe_ranks(diagnosis.missing_dumps));
  return diagnosis;
}

std::string to_json(const Diagnosis& diagnosis) {
  JsonWriter json;
  const auto write_ranks = [&](std::string_view name, const std::vector<int>& ranks) {
    json.key(name).array();
    for (const int rank : ranks) json.value(rank);
    json.end();
  };
  json.object().member("healthy", diagnosis.healthy()).member("text", diagnosis.text).key("findings").array();
  for (const Finding& f : diagnosis.findings) {
    json.object()
        .member("kind", name_of(f.kind))
        .member("group", f.group)
        .member("sequence", f.sequence)
        .member("call", f.call)
        .member("field", f.field);
    write_ranks("waiting", f.waiting);
    write_ranks("missing", f.missing);
    json.member("text", f.text).end();
  }
  json.end();
  write_ranks("ranks", diagnosis.ranks);
  write_ranks("missing_dumps", diagnosis.missing_dumps);
  return json.end().take();
}

}  // namespace tutti::comm
