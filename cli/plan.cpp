#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/resolved_config.h"
#include "tutti/core/error.h"
#include "tutti/generate/paged_cache.h"
#include "tutti/models/decoder_config.h"
#include "tutti/models/file_sizes.h"
#include "tutti/models/language_model.h"
#include "tutti/runtime/host.h"
#include "tutti/train/step/plan_layouts.h"
#include "tutti/train/step/run_model.h"

namespace tutti::cli {
namespace {

struct PlanFlags {
  std::string config;
  int64_t ranks = 1, local_ranks = 0, context = 0;
  bool all = false, json = false, svg = false, tensors = false, files = false;
  std::vector<std::string> overrides;
};

nlohmann::json to_json(const train::PlannedLayout& layout, int64_t local_ranks, bool has_tensors) {
  nlohmann::json line = {{"ranks", layout.degrees.data() * layout.degrees.tensor},
                         {"dp_replicate", layout.degrees.replicate},
                         {"dp_shard", layout.degrees.shard},
                         {"tp", layout.degrees.tensor},
                         {"ep", layout.degrees.expert}};
  if (!layout.plan) {
    line["refusal"] = layout.refusal;
    return line;
  }
  const train::StepPlan& plan = *layout.plan;
  const train::RankMemory& most = plan.largest();
  for (int i = 0; i < kNumMemoryCategories; ++i)
    line[std::string(name_of(static_cast<MemoryCategory>(i))) + "_bytes"] = most.by_category[static_cast<size_t>(i)];
  line["peak_bytes"] = most.peak();
  line["rank_0_bytes"] = plan.of_ranks[0].peak();
  line["host_ranks"] = local_ranks;
  line["host_bytes"] = plan.host_bytes(local_ranks);
  line["sent_gradient_bytes"] = static_cast<int64_t>(plan.gradient_bytes);
  line["sent_parameter_bytes"] = static_cast<int64_t>(plan.parameter_bytes);
  line["sent_activation_bytes"] = static_cast<int64_t>(plan.activation_bytes);
  for (const train::PlannedTensor& tensor : has_tensors ? plan.tensors : std::vector<train::PlannedTensor>())
    line["tensors"].push_back({{"name", tensor.name},
                               {"sizes", std::vector<int64_t>(tensor.sizes.begin(), tensor.sizes.end())},
                               {"stored_bytes", tensor.stored_bytes}});
  return line;
}

// The memory of keys and values of a text, by the values of --kv-cache-dtype and the dtypes that "auto" stands for.
struct CacheOfText {
  const char* name;
  int64_t token_nbytes, text_nbytes;
};
std::vector<CacheOfText> caches_of(const models::DecoderConfig& model, int64_t context) {
  std::vector<CacheOfText> caches;
  for (const auto& [name, dtype] : {std::pair{"float32", DType::f32},
                                    {"bfloat16", DType::bf16},
                                    {"int8", DType::i8},
                                    {"fp8_e4m3", DType::f8e4m3fn}})
    caches.push_back({name, generate::position_bytes(model, dtype),
                      generate::most_bytes(model, {.dtype = dtype, .context = context})});
  return caches;
}

std::string caches_text(const std::vector<CacheOfText>& caches, int64_t context) {
  std::string text = fmt::format("{:<57}", "keys and values, by --kv-cache-dtype");
  for (const CacheOfText& cache : caches) text += fmt::format("{:>10}", cache.name);
  text += fmt::format("\n{:<57}", "bytes of a token");
  for (const CacheOfText& cache : caches) text += fmt::format("{:>10}", cache.token_nbytes);
  text += fmt::format("\n{:<57}", fmt::format("GB of a text of {} tokens", context));
  for (const CacheOfText& cache : caches)
    text += fmt::format("{:>10.3f}", static_cast<double>(cache.text_nbytes) / 1e9);
  return text + "\n";
}

// The sizes of files of the model, of those types that are written most.
int print_files(const PlanFlags& flags) {
  using models::FileType;
  const train::Config config = resolved_config(flags.config, flags.overrides, {}, 1);
  const models::DecoderConfig model = train::build_model(config)->config();
  const models::FileSizes sizes = models::file_sizes(
      model, {FileType::q4_0, FileType::q4_k_m, FileType::q5_k_m, FileType::q6_k, FileType::q8_0, FileType::bf16});
  const int64_t context = flags.context == 0 ? config.data.sequence_length : flags.context;
  const std::vector<CacheOfText> caches = caches_of(model, context);
  if (!flags.json) {
    std::fputs((models::file_sizes_text(model, sizes) + caches_text(caches, context)).c_str(), stdout);
    return 0;
  }
  nlohmann::json line = {{"model", model.name()}, {"kinds", nlohmann::json::array()}};
  const auto of_types = [&](const std::vector<int64_t>& nbytes) {
    nlohmann::json values;
    for (size_t t = 0; t < nbytes.size(); ++t) values[std::string(models::row_of(sizes.types[t]).name)] = nbytes[t];
    return values;
  };
  for (const models::WeightKind& kind : sizes.kinds)
    line["kinds"].push_back({{"name", kind.name},
                             {"tensors", kind.tensors},
                             {"parameters", kind.parameters},
                             {"nbytes", of_types(kind.nbytes)}});
  line["file_nbytes"] = of_types(sizes.file_nbytes);
  line["kept_nbytes"] = of_types(sizes.kept_nbytes);
  line["context"] = context;
  for (const CacheOfText& cache : caches)
    line["cache"][cache.name] = {{"token_nbytes", cache.token_nbytes}, {"text_nbytes", cache.text_nbytes}};
  std::printf("%s\n", line.dump().c_str());
  return 0;
}

int run_plan(const PlanFlags& flags) {
  if (flags.files) return print_files(flags);
  const int64_t local = flags.local_ranks == 0 ? flags.ranks : flags.local_ranks;
  TUTTI_CHECK(local <= flags.ranks, "--ranks-per-host {} is more than the {} ranks of -n", local, flags.ranks);
  TUTTI_CHECK(!flags.tensors || !flags.all || flags.json,
              "--tensors lists the parameters of one layout; give --json with --all, or leave --all out");
  std::vector<std::string> overrides = flags.overrides;
  // Degrees that fit any number of ranks.
  if (flags.all)
    overrides.insert(overrides.end(),
                     {"--parallelism.data_parallel_replicate_degree=-1", "--parallelism.data_parallel_shard_degree=1",
                      "--parallelism.tensor_parallel_degree=1", "--parallelism.expert_parallel_degree=1"});
  train::Config config = resolved_config(flags.config, overrides, {}, flags.ranks);
  if (config.runtime.threads == 0)
    config.runtime.threads = std::max<int64_t>(1, usable_cores() / local);  // as the ranks will have them
  const bool shared = shares_memory(config, flags.ranks, local);
  const std::vector<train::PlannedLayout> layouts =
      flags.all ? train::plan_layouts(config, flags.ranks, shared)
                : std::vector<train::PlannedLayout>{train::plan_layout(config, flags.ranks, shared)};
  if (flags.json) {
    for (const train::PlannedLayout& layout : layouts)
      std::printf("%s\n", to_json(layout, local, flags.tensors).dump().c_str());
  } else {
    const std::string text = flags.svg       ? train::plans_svg(layouts)
                             : flags.all     ? train::plans_text(layouts, local)
                             : flags.tensors ? train::tensors_text(layouts[0])
                                             : train::plan_text(layouts[0], local);
    std::fputs(text.c_str(), stdout);
  }
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto flags = std::make_shared<PlanFlags>();
  CLI::App* verb = app.add_subcommand(
      "plan", "Say what a step of `tutti train` takes of each rank, memory and bytes sent, before anything runs");
  verb->add_option("config", flags->config, "Configuration, e.g. configs/quickstart.toml")->required();
  verb->add_option("-n,--ranks", flags->ranks,
                   "Ranks, none of which is started; those that share the batch are at most numerics.virtual_shards")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  verb->add_option("--ranks-per-host", flags->local_ranks, "Ranks on each host; by default all")
      ->check(CLI::PositiveNumber);
  verb->add_flag("--all", flags->all,
                 "Every mesh of these ranks, whatever degrees the configuration gives: the possible ones by memory and "
                 "bytes, then the others with the reason");
  CLI::Option* json = verb->add_flag(
      "--json", flags->json,
      "One object per layout: ranks, dp_replicate, dp_shard, tp, ep, and in bytes of the rank with the highest peak "
      "activations_bytes, parameters_bytes, gradients_bytes, optimizer_bytes, workspace_bytes, data_bytes, peak_bytes; "
      "rank_0_bytes (its peak); host_bytes of host_ranks ranks; sent_gradient_bytes, sent_parameter_bytes, "
      "sent_activation_bytes a step; or refusal: why it is not possible");
  CLI::Option* svg =
      verb->add_flag("--svg", flags->svg, "A picture: a bar per layout, divided by category")->excludes(json);
  verb->add_flag("--tensors", flags->tensors,
                 "Each parameter with its sizes and the bytes that ranks store of it; with --json as tensors: name, "
                 "sizes, stored_bytes of each rank, 64 at most")
      ->excludes(svg);
  CLI::Option* files =
      verb->add_flag(
              "--files", flags->files,
              "Instead: what the weights take in GGUF files of several types, by kind of tensor, and in memory with "
              "--quantized, and keys and values of a text of --context tokens; with --json one object: "
              "model, kinds (name, tensors, parameters, nbytes by type), file_nbytes, kept_nbytes, context, cache "
              "(token_nbytes, text_nbytes by dtype)")
          ->excludes(svg);
  verb->add_option("--context", flags->context, "Tokens of a text for --files; by default data.sequence_length")
      ->check(CLI::Range(1, 1 << 22))
      ->needs(files);
  verb->allow_extras();  // --section.key=value
  verb->callback([flags, verb, &action] {
    flags->overrides = overrides_of(*verb);
    action = [flags] { return run_plan(*flags); };
  });
}

}  // namespace tutti::cli
