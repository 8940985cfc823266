#include "cli/model_ranks.h"

#include <CLI/CLI.hpp>

#include "tutti/core/error.h"
#include "tutti/job/launch/launcher.h"

namespace tutti::cli {

void add_rank_flags(CLI::App& verb, ModelRanks& flags) {
  verb.add_option("-n,--ranks", flags.ranks, "Local ranks to start, which divide the model; the texts are those of one")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  verb.add_flag("--divide-products", flags.products,
                "With several ranks: divide the matrix products (tensor parallelism); so without flags");
  verb.add_flag("--divide-experts", flags.experts, "With several ranks: divide the experts of a mixture of experts");
}

std::optional<int> start_ranks(const ModelRanks& flags, const std::string& path, train::TextModelOptions& model,
                               std::optional<StartedRank>& rank) {
  model.divides_experts = flags.experts;
  model.divides_products = flags.products || !flags.experts;
  const auto place = comm::read_launch_place();
  TUTTI_CHECK(!place || flags.ranks == 1 || flags.ranks == place->world_size,
              "{} has started {} rank{} already; leave out -n", place->launcher, place->world_size,
              place->world_size == 1 ? "" : "s");
  if (!place && flags.ranks > 1) {
    train::check_text_model_ranks(path, flags.ranks, model);
    return comm::launch_local({.ranks = flags.ranks, .argv = flags.command_line});
  }
  if (place) {
    rank.emplace(*place, "auto");
    model.group = &rank->group();
  }
  return std::nullopt;
}

}  // namespace tutti::cli
