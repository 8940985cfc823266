#include "tutti/parallel/same_call.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <fmt/ranges.h>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::parallel {
namespace {

// Strings as one, each behind its length.
std::string packed(const std::vector<std::string>& list) {
  std::string bytes;
  for (const std::string& text : list) {
    const uint64_t size = text.size();
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += text;
  }
  return bytes;
}

std::vector<std::string> unpacked(const std::string& bytes) {
  std::vector<std::string> list;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof size);
    list.push_back(bytes.substr(at + sizeof size, size));
    at += sizeof size + size;
  }
  return list;
}

// The strings of all ranks of the mesh, in its order: gathered over its last dim, then what that gave over the one
// before. A rank of a simulated world hears nothing of the others.
std::vector<std::string> gathered(const dist::DeviceMesh& mesh, const std::string& mine) {
  std::vector<std::string> list{mine};
  for (int dim = mesh.ndim() - 1; dim >= 0; --dim) {
    if (mesh.size(dim) == 1) continue;
    std::vector<std::string> longer;
    const size_t each = list.size();
    for (const std::string& part : mesh.group(dim)->all_gather_bytes(packed(list))) {
      std::vector<std::string> said = unpacked(part);
      said.resize(each);
      longer.insert(longer.end(), said.begin(), said.end());
    }
    list = std::move(longer);
  }
  return list;
}

std::vector<CallFact> facts_in(const std::string& text) {
  std::vector<CallFact> facts;
  const std::vector<std::string> list = unpacked(text);
  for (size_t i = 0; i + 1 < list.size(); i += 2) facts.push_back({list[i], list[i + 1]});
  return facts;
}

// "rank 0", "ranks 1, 2".
std::string names_of(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// The first fact that is not the same on all ranks: who says what.
std::string difference(const std::vector<std::vector<CallFact>>& all, const std::vector<int>& ranks) {
  const auto said = [&](size_t rank, size_t fact) {
    if (fact >= all[rank].size()) return std::string("nothing more");
    return all[rank][fact].what + " " + all[rank][fact].value;
  };
  size_t most = 0;
  for (const auto& facts : all) most = std::max(most, facts.size());
  for (size_t fact = 0; fact < most; ++fact) {
    std::vector<std::pair<std::string, std::vector<int>>> groups;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const std::string text = said(rank, fact);
      const auto same = std::ranges::find(groups, text, &std::pair<std::string, std::vector<int>>::first);
      if (same == groups.end()) groups.push_back({text, {ranks[rank]}});
      else same->second.push_back(ranks[rank]);
    }
    if (groups.size() == 1) continue;
    std::string text;
    for (const auto& [value, of] : groups)
      text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", names_of(of), value);
    return text;
  }
  return "";
}

constexpr std::string_view kRefused = "refused";

}  // namespace

void check_same_call(const dist::DeviceMesh& mesh, std::string_view function,
                     FunctionRef<std::vector<CallFact>()> facts) {
  std::exception_ptr problem;
  std::vector<std::string> mine;
  try {
    for (CallFact& fact : facts()) {
      mine.push_back(std::move(fact.what));
      mine.push_back(std::move(fact.value));
    }
  } catch (const UsageError& error) {
    problem = std::current_exception();
    mine = {std::string(kRefused), error.what()};
  }
  const std::string text = packed(mine);
  const uint64_t hash = hash64(text.data(), text.size(), 0);
  const std::string own(reinterpret_cast<const char*>(&hash), sizeof hash);
  const std::vector<std::string> hashes = gathered(mesh, own);
  const auto agrees = [&](const std::string& other) { return other.empty() || other == own; };
  if (std::ranges::all_of(hashes, agrees)) {
    if (problem) std::rethrow_exception(problem);
    return;
  }
  const std::vector<std::string> texts = gathered(mesh, text);
  if (problem) std::rethrow_exception(problem);
  std::vector<std::vector<CallFact>> all;
  for (const std::string& of_rank : texts) all.push_back(facts_in(of_rank));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    TUTTI_CHECK(all[rank].empty() || all[rank][0].what != kRefused, "{}: rank {} refuses its arguments: {}", function,
                mesh.ranks()[rank], all[rank][0].value);
  }
  throw UsageError(fmt::format(
      "{}: the ranks of {} make different calls: {}; give all ranks the same modules, options and functions", function,
      mesh.to_string(), difference(all, mesh.ranks())));
}

}  // namespace tutti::parallel
