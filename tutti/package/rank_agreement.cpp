#include "tutti/package/rank_agreement.h"

#include <exception>

#include "tutti/core/error.h"

namespace tutti::package_detail {
namespace {

constexpr size_t kNameBytes = 256, kTextBytes = 768;  // of a statement: the part, then what is wrong, else nothing

// More than the calls of one function that are under way at once.
constexpr int kMostCallsUnderWay = 1000;

std::string padded(std::string text, size_t bytes) {
  text.resize(bytes);  // cut, or filled with zeros
  return text;
}

std::string unpadded(const std::string& text) { return text.substr(0, text.find('\0')); }

// The statements of all ranks. Calls that others have begun inside their work, and this rank has not, are met first:
// they end with an error on both.
std::vector<std::string> exchange(deploy::RankGroup& group, const std::string& statement, bool failed) {
  for (int met = 0;; ++met) {
    try {
      return group.all_gather(statement);
    } catch (const UsageError&) {
      if (!failed || met == kMostCallsUnderWay) throw;
    }
  }
}

}  // namespace

void RankAgreement::part(const std::string& name, FunctionRef<void()> work) const {
  std::exception_ptr problem;
  std::string text;
  const auto note = [&](const std::exception& error) {
    if (problem) return;
    problem = std::current_exception();
    text = error.what();
    if (text.empty()) text = "an error without a text";
  };
  const auto check = [&](const deploy::BoundGroup& group, const std::vector<std::string>& said) {
    for (size_t r = 0; r < said.size(); ++r) {
      const std::string at = unpadded(said[r].substr(0, kNameBytes)), wrong = unpadded(said[r].substr(kNameBytes));
      TUTTI_CHECK(wrong.empty(), "package: rank {} of group '{}' has failed: {}", r, group.name, wrong);
      TUTTI_CHECK(
          at == unpadded(padded(name, kNameBytes)),
          "package: rank {} of group '{}' is at '{}', and this is at '{}'; all ranks package the same function, "
          "with the same sizes",
          r, group.name, at, name);
    }
  };
  try {
    work();
  } catch (const std::exception& error) {
    note(error);
  }
  for (const deploy::BoundGroup& group : groups_) {
    try {
      check(group, exchange(*group.ranks, padded(name, kNameBytes) + padded(text, kTextBytes), problem != nullptr));
    } catch (const std::exception& error) {
      note(error);
    }
  }
  if (problem) std::rethrow_exception(problem);
}

}  // namespace tutti::package_detail
