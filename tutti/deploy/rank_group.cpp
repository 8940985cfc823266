#include "tutti/deploy/rank_group.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/deploy/manifest.h"

namespace tutti::deploy {
namespace {

thread_local const BoundGroups* bound = nullptr;

// What a rank tells the others: which files its own was made with, then what is wrong, else an empty text.
constexpr size_t kStatementBytes = 512;

std::string statement(const PackageGroup& wanted, const std::string& complaint) {
  std::string text = wanted.together + complaint;
  text.resize(kStatementBytes);  // cut, or filled with zeros
  return text;
}

std::string complaint_of(const std::string& statement) {
  const std::string text = statement.substr(kTogetherBytes);
  return text.substr(0, text.find('\0'));
}

// What is wrong with this group or, as the other ranks must hear it too, was wrong with one before; else an empty text.
// UsageError for another number of ranks, whose words would not fit.
std::string bind(const std::string& function, const PackageGroup& wanted, RankGroup& group, std::string complaint) {
  TUTTI_CHECK(group.size() == wanted.ranks,
              "{}: was packaged with the {} ranks of group '{}', and this group has {}; give a group of the same size, "
              "or package the function with this one",
              function, wanted.ranks, wanted.name, group.size());
  if (complaint.empty() && wanted.rank >= 0 && wanted.rank != group.rank())
    complaint = fmt::format(
        "{}: this file is that of rank {} of group '{}', and this is rank {}; each rank opens the file that it has "
        "written",
        function, wanted.rank, wanted.name, group.rank());
  const std::vector<std::string> said = group.all_gather(statement(wanted, complaint));
  if (!complaint.empty()) return complaint;
  for (size_t r = 0; r < said.size(); ++r) {
    if (const std::string other = complaint_of(said[r]); !other.empty()) return fmt::format("rank {}: {}", r, other);
    if (said[r].compare(0, kTogetherBytes, wanted.together) != 0)
      return fmt::format(
          "{}: rank {} of group '{}' has opened a package that was not made together with that of rank {}; all ranks "
          "open what one call of package() on each of them has written",
          function, r, wanted.name, group.rank());
  }
  return "";
}

}  // namespace

BoundGroupsScope::BoundGroupsScope(const BoundGroups& groups) : before_(bound) { bound = &groups; }
BoundGroupsScope::~BoundGroupsScope() { bound = before_; }

RankGroup& BoundGroupsScope::find(const std::string& name, const char* op) {
  if (bound != nullptr) {
    for (const BoundGroup& group : *bound) {
      if (group.name == name) return *group.ranks;
    }
  }
  throw UsageError(fmt::format("{}: the package has no group '{}'", op, name));
}

BoundGroups bind_groups(const std::string& function, std::span<const PackageGroup> wanted,
                        std::span<const std::shared_ptr<RankGroup>> groups) {
  TUTTI_CHECK(groups.size() == wanted.size(), "{}: {} groups are given, and the function communicates in {}", function,
              groups.size(), wanted.size());
  for (size_t i = 0; i < groups.size(); ++i)
    TUTTI_CHECK(groups[i] != nullptr, "{}: group {}, '{}', is null", function, i, wanted[i].name);
  BoundGroups made;
  std::string complaint;
  for (size_t i = 0; i < groups.size(); ++i) {
    complaint = bind(function, wanted[i], *groups[i], complaint);
    made.push_back({wanted[i].name, groups[i]});
  }
  TUTTI_CHECK(complaint.empty(), "{}", complaint);
  return made;
}

}  // namespace tutti::deploy
