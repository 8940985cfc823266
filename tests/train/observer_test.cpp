#include "tutti/train/observer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

size_t place_of(const std::string& name) {
  const auto rows = observer_rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    if (name == rows[i].name) return i;
  }
  ADD_FAILURE() << "there is no observer " << name;
  return rows.size();
}

TEST(Observers, EachIsAFileOfItsFolderAndNothingElseListsIt) {
  std::set<std::string> files, rows;
  for (const auto& file : fs::directory_iterator(fs::path(TUTTI_SOURCE_DIR) / "tutti/train/observers"))
    files.insert(file.path().stem().string());
  for (const NamedObserverRow& o : observer_rows()) rows.insert(o.name);
  EXPECT_EQ(rows, files);
}

TEST(Observers, AStepIsMeasuredThenLoggedThenSaved) {
  EXPECT_LT(place_of("validate"), place_of("log"));
  EXPECT_LT(place_of("log"), place_of("save"));
  EXPECT_LT(place_of("save"), place_of("survive"));
}

TEST(Observers, WhatTheReportShowsIsThereBeforeItIsWritten) {
  for (const char* name : {"timeline", "sample", "memory"}) EXPECT_LT(place_of(name), place_of("report")) << name;
  EXPECT_LT(place_of("report"), place_of("digest"));
}

}  // namespace
}  // namespace tutti::train
