#include "cli/resolved_config.h"

#include <cstdio>
#include <filesystem>

#include "tutti/job/printable.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/config/data_degrees.h"
#include "tutti/train/step/run_model.h"

namespace tutti::cli {

train::Config resolved_config(const std::string& file, const std::vector<std::string>& overrides,
                              const std::vector<std::string>& data, int64_t ranks, bool is_quiet) {
  std::vector<std::string> notes;
  train::Config config = train::load_config(file, &notes);
  for (const std::string& note : notes) {
    if (!is_quiet) std::fprintf(stderr, "tutti: warning: %s\n", comm::printable_lines(note).c_str());
  }
  train::apply_environment(config);
  for (const std::string& flag : overrides) train::apply_override(config, flag);
  if (!data.empty()) config.data.paths = data;
  if (config.run.name.empty()) config.run.name = std::filesystem::path(file).stem().string();
  const train::DataDegrees degrees = train::data_degrees(config.parallelism, ranks);
  train::validate(config);
  train::build_model(config);
  parallel::shards_of_rank(config.numerics.virtual_shards, 0, static_cast<int>(degrees.data()));
  return config;
}

bool shares_memory(const train::Config& config, int64_t ranks, int64_t local_ranks) {
  const std::string& transport = config.runtime.transport;
  return ranks == local_ranks && (transport == "auto" || transport == "shm" || transport == "threads");
}

}  // namespace tutti::cli
