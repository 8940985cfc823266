// The functions of the library that are compiled once for the process, and so shared by ranks that are threads.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/dtensor/support/shared_calls.h"
#include "tutti/nn/loss.h"

namespace tutti::dist {
namespace {

std::vector<SharedFunction> losses() {
  std::vector<SharedFunction> all;
  for (const auto& [name, reduction] :
       {std::pair("none", LossReduction::none), {"sum", LossReduction::sum}, {"mean", LossReduction::mean}}) {
    const auto add_one = [&, r = reduction](const char* loss, auto fn) {
      all.push_back({fmt::format("{} {}", loss, name),
                     [fn, r](const Tensor& a, const Tensor& b) { return fn(a, b, r); }, nullptr});
    };
    add_one("mse_loss", [](const Tensor& a, const Tensor& b, LossReduction r) { return nn::mse_loss(a, b, r); });
    add_one("l1_loss", [](const Tensor& a, const Tensor& b, LossReduction r) { return nn::l1_loss(a, b, r); });
    add_one("huber_loss",
            [](const Tensor& a, const Tensor& b, LossReduction r) { return nn::huber_loss(a, b, 0.75, r); });
    add_one("smooth_l1_loss",
            [](const Tensor& a, const Tensor& b, LossReduction r) { return nn::smooth_l1_loss(a, b, 0.5, r); });
    add_one("binary_cross_entropy_with_logits", [](const Tensor& a, const Tensor& b, LossReduction r) {
      return nn::binary_cross_entropy_with_logits(a, b, {}, r);
    });
    add_one("binary_cross_entropy_with_logits weighted", [](const Tensor& a, const Tensor& b, LossReduction r) {
      return nn::binary_cross_entropy_with_logits(a, b, b, r);
    });
    add_one("kl_div", [](const Tensor& a, const Tensor& b, LossReduction r) { return nn::kl_div(a, b, false, r); });
    add_one("kl_div of logarithms",
            [](const Tensor& a, const Tensor& b, LossReduction r) { return nn::kl_div(a, b, true, r); });
  }
  return all;
}

// By their names in the sources.
TEST(SharedLosses, EveryFunctionOfTheLibraryThatIsCompiledIsTested) {
  std::set<std::string> compiled, tested;
  const std::string call = "fused(";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TUTTI_SOURCE_DIR "/tutti")) {
    if (entry.path().extension() != ".cpp") continue;
    std::stringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    const std::string source = text.str();
    for (size_t at = source.find(call); at != std::string::npos; at = source.find(call, at + 1)) {
      const size_t begin = source.find_first_not_of(" \n", at + call.size()) + 1;  // behind the quote
      if (source[begin - 1] != '"') continue;
      compiled.insert(source.substr(begin, source.find('"', begin) - begin));
    }
  }
  for (const SharedFunction& f : losses()) tested.insert(f.name.substr(0, f.name.find(' ')));
  EXPECT_EQ(compiled, tested);
}

TEST(SharedLosses, HaveTheBitsOfOneRank) {
  // Each on two of the meshes, which differ from loss to loss.
  const std::vector<SharedFunction> all = losses();
  for (size_t m = 0; m < kSharedMeshes.size(); ++m) {
    for (size_t f = m % 3; f < all.size(); f += 3) check_shared(kSharedMeshes[m], {all[f]});
  }
}

}  // namespace
}  // namespace tutti::dist
