#include "tutti/package/rank_agreement.h"

#include <exception>
#include <functional>
#include <utility>

#include "tutti/core/blake2b.h"
#include "tutti/core/error.h"

namespace tutti::package_detail {
namespace {

// More than the calls of one function that are under way at once.
constexpr int kMostCallsUnderWay = 1000;

// What a rank says of a part, in a text of one size: a digest of its name, the beginning of the name, and what is
// wrong, else nothing.
struct Statement {
  static constexpr size_t kDigest = 16, kName = 240, kText = 767;

  std::string part, text;
  bool disturbs = false;  // it has failed first: calls of others have met its statement

  std::string to_bytes() const {
    Blake2b digest(kDigest);
    digest.add(part);
    const auto padded = [](std::string s, size_t bytes) {
      s.resize(bytes);  // cut, or filled with zeros
      return s;
    };
    return digest.finish() + padded(part, kName) + (disturbs ? '1' : '0') + padded(text, kText);
  }
  static Statement of_bytes(const std::string& bytes) {
    const auto unpadded = [&](size_t first, size_t count) {
      const std::string s = bytes.substr(first, count);
      return s.substr(0, s.find('\0'));
    };
    constexpr size_t kFlag = kDigest + kName;
    return {unpadded(kDigest, kName), unpadded(kFlag + 1, kText), bytes[kFlag] == '1'};
  }
  static bool is_same_part(const std::string& a, const std::string& b) {
    return a.compare(0, kDigest, b, 0, kDigest) == 0;
  }
};

// The error of one rank in a part, and what the others are told of it.
struct Problem {
  std::exception_ptr error;
  std::string text;
  bool is_of_another = false;

  void note(bool of_another = false) {
    error = std::current_exception();
    is_of_another = of_another;
    try {
      throw;
    } catch (const std::exception& e) {
      text = e.what();
    } catch (...) {
      text = "an exception that is no std::exception";
    }
    if (text.empty()) text = "an error without a text";
  }
};

}  // namespace

void RankAgreement::part(const std::string& name, FunctionRef<void()> work) const {
  Problem problem;
  try {
    work();
  } catch (...) {
    problem.note();
  }
  Statement own{.part = name};
  using Texts = std::vector<std::string>;
  std::vector<std::function<Texts()>> waits(groups_.size());
  const auto begin = [&](size_t g) {
    own.text = problem.text;
    waits[g] = groups_[g].ranks->start_all_gather(own.to_bytes());
  };
  // The statements of all ranks of a group. Calls that others have begun inside their work, and this rank has not, meet
  // its statement and end with an error on both; then both say so.
  const auto heard = [&](size_t g) -> Texts {
    for (int met = 0;; ++met) {
      try {
        if (waits[g] == nullptr) begin(g);
        return std::exchange(waits[g], nullptr)();
      } catch (const UsageError&) {
        waits[g] = nullptr;
        if (met == kMostCallsUnderWay) throw;
        if (problem.error == nullptr) problem.note(true);
        else own.disturbs = own.disturbs || !problem.is_of_another;
      }
    }
  };
  // Throws what stands in the place of the own error, if anything does: that of a rank which has caused it.
  const auto check = [&](const deploy::BoundGroup& group, const Texts& said) {
    const auto fail = [&](size_t r, const Statement& other) {
      throw UsageError(fmt::format("package: rank {} of group '{}' has failed: {}", r, group.name, other.text));
    };
    for (size_t r = 0; r < said.size(); ++r) {
      const Statement other = Statement::of_bytes(said[r]);
      if (other.disturbs && !own.disturbs && !problem.is_of_another) fail(r, other);
    }
    for (size_t r = 0; problem.error == nullptr && r < said.size(); ++r) {
      const Statement other = Statement::of_bytes(said[r]);
      if (!other.text.empty()) fail(r, other);
      TUTTI_CHECK(
          Statement::is_same_part(said[r], own.to_bytes()),
          "package: rank {} of group '{}' is at '{}', and this is at '{}'; all ranks package the same function, "
          "with the same sizes",
          r, group.name, other.part, name);
    }
  };
  // A rank that has failed says so in all groups before it waits in any: others may be in calls of each.
  for (size_t g = 0; problem.error != nullptr && g < groups_.size(); ++g) {
    try {
      begin(g);
    } catch (...) {
      waits[g] = nullptr;  // said again below
    }
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Texts said;
    try {
      said = heard(g);
    } catch (...) {
      if (problem.error == nullptr) problem.note(true);
      continue;
    }
    try {
      check(groups_[g], said);
    } catch (...) {
      problem.note(true);
    }
  }
  if (problem.error) std::rethrow_exception(problem.error);
}

}  // namespace tutti::package_detail
