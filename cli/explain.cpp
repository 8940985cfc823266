#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <deque>
#include <memory>

#include "cli/command.h"
#include "tutti/core/error.h"
#include "tutti/dist/explain.h"
#include "tutti/dist/rule_report.h"
#include "tutti/dist/visualize.h"

namespace tutti::cli {
namespace {

// "2x4" as {2, 4}.
std::vector<int64_t> mesh_shape(const std::string& text) {
  std::vector<int64_t> shape;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('x', begin), text.size());
    int64_t size = 0;
    const auto [last, error] = std::from_chars(text.data() + begin, text.data() + end, size);
    TUTTI_CHECK(error == std::errc{} && last == text.data() + end && size >= 1,
                "--mesh '{}': expected numbers of ranks with x between them, as in 2x4", text);
    shape.push_back(size);
    begin = end + 1;
  }
  return shape;
}

}  // namespace

void add_explain(CLI::App& app, Action& action, int argc, char** argv) {
  static std::deque<std::string> with_dtype;  // as long as argv
  for (int i = 1; i < argc && argc > 1 && std::string_view(argv[1]) == "explain"; ++i) {
    if (argv[i][0] == '[') argv[i] = with_dtype.emplace_back(std::string("f32") + argv[i]).data();
  }

  CLI::App* explain = app.add_subcommand("explain", "Say why something is done the way it is");
  explain->require_subcommand(1);
  explain->add_subcommand("rules", "The sharding rules of all ops, as a page of the documentation")
      ->callback([&action] {
        action = [] {
          std::fputs(dist::rule_report().c_str(), stdout);
          return 0;
        };
      });
  CLI::App* layout = explain->add_subcommand("layout", "Which rank holds which rows and columns of a tensor");
  auto tensor = std::make_shared<std::string>(), grid = std::make_shared<std::string>();
  auto svg = std::make_shared<bool>(false);
  layout->add_option("tensor", *tensor, "DTYPE[SIZES]@[PLACEMENTS] of one or two dims, as in \"[5,4]@[S(0),S(1)]\"")
      ->required();
  layout->add_option("--mesh", *grid, "Ranks per mesh dim, as 4 or 2x2")->required();
  layout->add_flag("--svg", *svg, "A picture instead of text");
  layout->callback([&action, tensor, grid, svg] {
    action = [tensor, grid, svg] {
      const dist::DTensorSpec& spec = dist::spec_from_text(*tensor, mesh_shape(*grid));
      std::vector<int> ranks;
      int64_t count = 1;
      for (const int64_t n : spec.mesh_shape()) {
        count = n > 4096 ? n : count * n;
        TUTTI_CHECK(count <= 4096, "--mesh {}: a picture has at most 4,096 ranks", *grid);
      }
      for (int r = 0; r < count; ++r) ranks.push_back(r);
      std::fputs((*svg ? dist::visualize_svg(spec, ranks) : dist::visualize(spec, ranks)).c_str(), stdout);
      return 0;
    };
  });
  CLI::App* sharding = explain->add_subcommand(
      "sharding",
      "How an op on distributed tensors is computed: the row of its rule, what moves, and what else was possible");
  auto question = std::make_shared<dist::ShardingQuestion>();
  auto mesh = std::make_shared<std::string>();
  auto fast = std::make_shared<bool>(false);
  sharding->add_option("op", question->op, "The op, as matmul or softmax")->required();
  sharding->add_option("--mesh", *mesh, "Ranks per mesh dim, as 4 or 2x2")->required();
  sharding
      ->add_option("--inputs", question->inputs,
                   "Each tensor as DTYPE[SIZES]@[PLACEMENTS], as in \"[4096,1024]@[S(0),R]\"; f32 without DTYPE")
      ->required()
      ->expected(1, -1);
  sharding->add_option("--attrs", question->attrs, "The op's attrs as text, as in \"{dims: [1], keepdim: false}\"");
  sharding->add_option("--transport", question->transport, "The transport whose cost model ranks the rows")
      ->capture_default_str();
  sharding
      ->add_option("--costs", question->costs,
                   "Measured costs, which `tutti bench comm --costs` wrote, instead of the table")
      ->envname("TUTTI_DTENSOR_COSTS");
  sharding->add_flag("--fast", *fast, "Rows of fast mode as well, which do not keep the bits of one rank");
  sharding->callback([&action, question, mesh, fast] {
    action = [question, mesh, fast] {
      question->mesh = mesh_shape(*mesh);
      question->strict = !*fast;
      std::fputs(dist::explain_sharding(*question).c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace tutti::cli
