// Everything that reads JSON from outside, each as one function, so that tests can loop over it.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace tutti::testing {

struct JsonReader {
  std::string name;
  std::string file;  // what errors name: the file in `folder`, or a key of a store
  std::string good;
  // Reads `text` where a good one would stand. What is no file is read as it is.
  std::function<void(const TemporaryFolder& folder, const std::string& text)> read;
  // Reads what stands at `file` in the folder; empty where no file is read.
  std::function<void(const TemporaryFolder& folder)> read_file = nullptr;
  // The subject that errors name instead when a text is understood and does not fit what else is there.
  std::string subject = "";
};

const std::vector<JsonReader>& every_json_reader();

}  // namespace tutti::testing
