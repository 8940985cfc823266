// [run]: the keys with their defaults.
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> run_keys() {
  return {
      {TUTTI_KEY(run, std::string, name, ""), .doc = "name of the run folder; empty: the name of the config file",
       .unit = ""},
      {TUTTI_KEY(run, std::string, dir, "runs"), .doc = "folder that contains the folders of all runs", .unit = ""},
  };
}

}  // namespace

TUTTI_SECTION(run, RunConfig, 13) = {
    .name = "run",
    .doc = "The folder of the results.",
    .keys = run_keys,
};

}  // namespace tutti::train
