// Every public function of tutti/ops with distributed operands only: the tensors that a function makes itself (ones of
// a norm, offsets of bags, labels of no class) lie beside them as replicas. Only a plain tensor of the user is refused.
#include <cctype>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tests/dtensor/support/public_calls.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/slice.h"

namespace tutti::dist {
namespace {

// Functions of tutti/ops/*.h that take tensors, by their declarations.
std::set<std::string> declared() {
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(TUTTI_SOURCE_DIR "/tutti/ops")) {
    if (file.path().extension() != ".h") continue;
    std::ifstream text(file.path());
    for (std::string line; std::getline(text, line);) {
      for (const char* first :
           {"(const Tensor&", "(std::span<const Tensor>", "(const ClassStatistics&", "(const SdpaPartial&"}) {
        const size_t end = line.find(first);
        if (end == std::string::npos || line.find("operator") < end ||
            std::isalpha(static_cast<unsigned char>(line[0])) == 0)
          continue;
        const size_t begin = line.rfind(' ', end) + 1;
        if (begin > 0 && begin < end) names.insert(line.substr(begin, end - begin));
      }
    }
  }
  return names;
}

using Place = std::function<Tensor(const Tensor& whole, size_t operand)>;

// The results of a call on operands where `place` puts them, then the gradients of the operands, if they are wanted.
std::vector<Tensor> outcome_of(const PublicCall& call, bool with_gradients, const Place& place,
                               const std::function<Tensor(const Tensor&)>& cotangent) {
  std::vector<Tensor> operands;
  for (size_t i = 0; i < call.operands.size(); ++i) {
    operands.push_back(place(clone(call.operands[i]), i));
    if (with_gradients && is_floating(call.operands[i].dtype())) requires_grad_(operands.back());
  }
  std::vector<Tensor> all = call.run(operands);
  if (!with_gradients) return all;
  const size_t results = all.size();
  for (size_t k = 0; k < results; ++k) {
    if (all[k].defined() && requires_grad(all[k]))
      backward(all[k], cotangent(sample(all[k].extents(), all[k].dtype(), 50 + k)), {.retain_graph = true});
  }
  for (const Tensor& t : operands) all.push_back(grad_of(t));
  return all;
}

std::vector<Tensor> outcome_of_plain(const PublicCall& call, bool with_gradients) {
  return outcome_of(call, with_gradients, [](const Tensor& t, size_t) { return t; }, [](const Tensor& g) { return g; });
}

// A function that has no gradient, or writes its operands, says so of plain tensors.
bool has_gradients(const PublicCall& call) {
  try {
    outcome_of_plain(call, true);
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

class PublicFunctions : public ::testing::TestWithParam<std::vector<int64_t>> {};
INSTANTIATE_TEST_SUITE_P(Meshes, PublicFunctions,
                         ::testing::Values(std::vector<int64_t>{2}, std::vector<int64_t>{3},
                                           std::vector<int64_t>{2, 2}));

TEST_P(PublicFunctions, TakeDistributedOperandsOnly) {
  const std::vector<int64_t> shape = GetParam();
  // All are replicas; the first is divided, with what is written; all are, along the first dim or the last.
  const auto placements = [&](int layout, const PublicCall& call, size_t i) {
    const Tensor& t = call.operands[i];
    Placements p(shape.size(), replicate());
    if (t.ndim() == 0 || layout == 0 || (layout == 1 && i > 0 && i >= call.written)) return p;
    p.back() = shard(layout == 3 ? t.ndim() - 1 : 0);
    return p;
  };
  for (const PublicCall& call : public_calls()) {
    const bool with_gradients = call.written == 0 && has_gradients(call);
    const std::vector<Tensor> expected = outcome_of_plain(call, with_gradients);
    for (int layout = 0; layout < 4; ++layout) {
      const std::string about = fmt::format("{}, layout {}", call.name, layout);
      std::string refusal;
      on_mesh(shape, [&](const Mesh& mesh) {
        const auto on = [&](const Tensor& t, Placements p) {
          return distribute_tensor(t, mesh, std::move(p), {.src_data_rank = -1});
        };
        std::vector<Tensor> found;
        try {
          found = outcome_of(
              call, with_gradients, [&](const Tensor& t, size_t i) { return on(t, placements(layout, call, i)); },
              [&](const Tensor& g) { return on(g, {}); });
        } catch (const UsageError& error) {
          if (mesh->rank() == 0) refusal = error.what();
          return;
        }
        for (size_t k = 0; k < expected.size(); ++k) {
          if (found[k].defined() != expected[k].defined())
            throw std::logic_error(
                fmt::format("tensor {} is {}; {}", k, found[k].defined() ? "defined" : "undefined", about));
          if (!found[k].defined()) continue;
          if (!is_dtensor(found[k])) throw std::logic_error(fmt::format("tensor {} is plain; {}", k, about));
          require_none(difference(full_tensor(found[k]), expected[k]), fmt::format("tensor {}; {}", k, about));
        }
      });
      EXPECT_EQ(refusal.find("is the plain tensor"), std::string::npos) << about << ": " << refusal;
      const char* wanted = layout == 0 || call.refusal_of_divided == nullptr ? call.refusal : call.refusal_of_divided;
      if (wanted == nullptr) EXPECT_EQ(refusal, "") << about;
      else EXPECT_NE(refusal.find(wanted), std::string::npos) << about << ": " << refusal;
    }
  }
}

// Sizes may make a call do nothing: what it gives is memory of its own all the same, which can be written without a
// change of the operands.
TEST(PublicFunctions, OnlyViewsShareTheMemoryOfTheirOperands) {
  static const std::set<std::string> views = {"as_strided",
                                              "chunk",
                                              "diagonal",
                                              "expand",
                                              "expand_as",
                                              "flatten",
                                              "narrow",
                                              "permute",
                                              "reshape",
                                              "select",
                                              "slice",
                                              "split",
                                              "squeeze",
                                              "t",
                                              "transpose",
                                              "unflatten",
                                              "unfold",
                                              "unsqueeze",
                                              "view",
                                              "bitcast" /* to its own dtype */,
                                              "contiguous" /* of a contiguous tensor */,
                                              "resize_storage_"};
  std::set<std::string> found;
  for (const PublicCall& call : public_calls()) {
    for (const int64_t size : {-1, 0, 1}) {
      std::vector<Tensor> operands;
      for (const Tensor& whole : call.operands) {
        Tensor t = clone(whole);
        for (int d = 0; size >= 0 && d < t.ndim(); ++d) t = narrow(t, d, 0, std::min(size, t.extent(d)));
        operands.push_back(t.ndim() == 0 ? t : clone(t));
      }
      std::vector<Tensor> results;
      try {
        results = call.run(operands);
      } catch (const UsageError&) {
        continue;  // it has no call of these sizes
      }
      for (const Tensor& result : results) {
        const auto shares = [&](const Tensor& t) {
          return result.defined() && t.storage().get() == result.storage().get();
        };
        if (std::any_of(operands.begin() + static_cast<std::ptrdiff_t>(call.written), operands.end(), shares))
          found.insert(call.name.substr(0, call.name.find(' ')));
      }
    }
  }
  EXPECT_EQ(found, views);
}

TEST(PublicFunctions, NoneIsMissing) {
  std::set<std::string> called;
  for (const PublicCall& call : public_calls()) called.insert(call.name.substr(0, call.name.find(' ')));
  const std::set<std::string> names = declared();
  EXPECT_GT(names.size(), 150u);
  for (const std::string& name : names)
    EXPECT_TRUE(called.contains(name)) << name
                                       << " is declared in tutti/ops; add a call of it to support/public_calls.cpp";
}

}  // namespace
}  // namespace tutti::dist
