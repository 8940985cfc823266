#include "cli/resolved_config.h"

#include <cstdio>
#include <filesystem>

#include "tutti/job/printable.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/config/data_degrees.h"
#include "tutti/train/config/faults.h"
#include "tutti/train/task/task_kind.h"

namespace tutti::cli {

train::Config resolved_config(const std::string& file, const std::vector<std::string>& overrides,
                              const std::vector<std::string>& data, int64_t ranks, bool is_quiet) {
  std::vector<std::string> notes;
  train::Config config;
  train::Faults faults;
  try {
    train::read_config(config, file, &notes);
  } catch (const train::ConfigError& error) {  // else there is no file, or nothing can be told of it
    for (const std::string& fault : error.faults()) faults.add(fault);
  }
  for (const std::string& note : notes) {
    if (!is_quiet) std::fprintf(stderr, "tutti: warning: %s\n", comm::printable_lines(note).c_str());
  }
  faults.collect([&] { train::apply_environment(config); });
  for (const std::string& flag : overrides) faults.collect([&] { train::apply_override(config, flag); });
  if (!data.empty()) config.data.paths = data;
  if (config.run.name.empty()) config.run.name = std::filesystem::path(file).stem().string();
  train::Faults rules;
  rules.collect([&] {
    const train::DataDegrees degrees = train::data_degrees(config.parallelism, ranks);
    parallel::shards_of_rank(config.numerics.virtual_shards, 0, static_cast<int>(degrees.data()));
  });
  rules.collect([&] { train::validate(config); });
  rules.collect([&] { train::task_kind(config).check_model(config); });
  faults.add_rules(rules);
  faults.raise();
  return config;
}

bool shares_memory(const train::Config& config, int64_t ranks, int64_t local_ranks) {
  const std::string& transport = config.runtime.transport;
  return ranks == local_ranks && (transport == "auto" || transport == "shm" || transport == "threads");
}

}  // namespace tutti::cli
