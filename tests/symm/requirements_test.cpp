// docs/symmetric_memory.md lists what symmetric memory must do and the tests that hold it to that. Here are the tests
// of requirements that are about structure, and the one that compares the list with the tests there are.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <type_traits>

#include "tests/symm/support/ranks.h"
#include "tutti/comm/transport.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/rendezvous.h"
#include "tutti/symm/symmetric_tensor.h"

namespace tutti::comm::symm {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

SymmGroup single(const std::shared_ptr<Store>& store, const std::string& name = "1") {
  return SymmGroup(make_group_key(name, std::vector<int>{0}, 0), 0, 1, store);
}

TEST(SymmRequirements, EveryBackendGoesThroughTheSameSteps) {
  for (const std::string& name : backend_names()) {
    const SymmGroup group = single(std::make_shared<HashStore>());
    group.select_backend(name);
    EXPECT_EQ(group.backend(), name);
    const BackendTraits& traits = find_backend(name).traits();
    EXPECT_EQ(traits.name, name);
    // What a backend does not need is declared, and its steps do nothing.
    if (!traits.needs_library) find_backend(name).open();
    if (!traits.needs_communicator && !traits.needs_library) connect_group(group);
  }
}

TEST(SymmRequirements, KeysOfOthersInTheStoreStay) {
  const auto store = std::make_shared<HashStore>();
  store->set("1", "a user's");
  store->set("symm", "another");
  {
    const SymmGroup group = single(store);
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    rendezvous(t, group);
    for (const std::string& key : store->list_keys())
      EXPECT_TRUE(key == "1" || key == "symm" || key.starts_with("symm/")) << key;
  }
  EXPECT_EQ(store->get("1"), "a user's");
  EXPECT_EQ(store->get("symm"), "another");
}

TEST(SymmRequirements, CopiesOfAGroupAreOneGroup) {
  const auto store = std::make_shared<HashStore>();
  std::shared_ptr<SymmHandle> handle;
  Tensor t;
  {
    const SymmGroup group = single(store), copy = group, other = single(store);
    EXPECT_TRUE(group.is_same(copy));
    EXPECT_FALSE(group.is_same(other));
    t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    handle = rendezvous(t, group);
    EXPECT_EQ(rendezvous(t, copy), handle);
    EXPECT_NE(rendezvous(t, other), handle);
  }
  // The handle is whole without the group; meeting again needs a living one.
  handle->barrier();
  EXPECT_NE(complaint_of([&] { rendezvous(t); }).find("no group was given at allocation, or it is gone"),
            std::string::npos);
}

TEST(SymmRequirements, TheStoreIsTheLastToGo) {
  auto store = std::make_shared<HashStore>();
  const auto other = store->clone();
  {
    const SymmGroup group(make_group_key("g", std::vector<int>{0, 1}, 0), 0, 2, std::move(store), {}, 50ms);
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    EXPECT_THROW(rendezvous(t, group), TimeoutError);
  }
  // What a failed meeting left was removed through the store that only the group held.
  for (const std::string& key : other->list_keys())
    EXPECT_TRUE(key.find("/made/") != std::string::npos || key.ends_with("/next")) << key;
}

TEST(SymmRequirements, SymmetricTensorIsASmallTypeOfItsOwn) {
  static_assert(!std::is_polymorphic_v<SymmetricTensor> && !std::is_base_of_v<Tensor, SymmetricTensor>);
  // The tensor, the group, the handle and the view; nothing that the handle has.
  static_assert(sizeof(SymmetricTensor) ==
                2 * sizeof(Tensor) + sizeof(SymmGroup) + sizeof(std::shared_ptr<SymmHandle>));
}

TEST(SymmRequirements, TheExampleStandsAlone) {
  const std::string text = read(fs::path(TUTTI_SOURCE_DIR) / "examples/05_symmetric_memory.cpp");
  EXPECT_NE(text.find("// Last line of output: "), std::string::npos);  // the suite of examples runs it
  EXPECT_EQ(text.find("tutti/codegen"), std::string::npos);
}

TEST(SymmRequirements, SourcesHaveNoConditionalPartsAndPrintNothing) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(TUTTI_SOURCE_DIR) / "tutti/symm")) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string text = read(entry.path());
    for (const char* word : {"#if", "__has_include", "std::cerr", "std::cout", "printf(", "abort(", "_exit("}) {
      EXPECT_EQ(text.find(word), std::string::npos) << entry.path() << " has " << word;
    }
  }
  EXPECT_GT(files, 30);
}

TEST(SymmRequirements, OneSwitchAndNoConditionalPartsInCommunication) {
  // The guards of headers that C compilers read are none.
  const std::regex own_condition(R"(#\s*(if(?!ndef TUTTI_\w+_H\n)|elif)[^\n]*(TUTTI_|__has_include))");
  for (const char* room : {"tutti/job", "tutti/symm", "tutti/comm"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(TUTTI_SOURCE_DIR) / room)) {
      if (!entry.is_regular_file()) continue;
      EXPECT_FALSE(std::regex_search(read(entry.path()), own_condition)) << entry.path();
    }
  }
}

TEST(SymmRequirements, TheListNamesTestsThatExist) {
  std::set<std::string> tests;
  const std::regex definition(R"(TEST(?:_P)?\((\w+), (\w+)\))");
  for (const char* folder : {"tests/symm", "tests/job"}) {
    for (const auto& entry : fs::directory_iterator(fs::path(TUTTI_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".cpp") continue;
      const std::string text = read(entry.path());
      for (std::sregex_iterator it(text.begin(), text.end(), definition), end; it != end; ++it) {
        tests.insert((*it)[1].str() + "." + (*it)[2].str());
      }
    }
  }
  const std::string page = read(fs::path(TUTTI_SOURCE_DIR) / "docs/symmetric_memory.md");
  std::set<int> rows;
  const std::regex row(R"(\n\| (\d+) \|[^\n]*\| ([^\n|]*) \|)"), name(R"(`(\w+\.\w+)`)");
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it) {
    rows.insert(std::stoi((*it)[1]));
    const std::string cell = (*it)[2];
    int named = 0;
    for (std::sregex_iterator test(cell.begin(), cell.end(), name); test != end; ++test, ++named) {
      EXPECT_TRUE(tests.contains((*test)[1])) << "requirement " << (*it)[1] << " names " << (*test)[1];
    }
    EXPECT_GT(named, 0) << "requirement " << (*it)[1] << " names no test";
  }
  EXPECT_EQ(rows.size(), 32u);
}

}  // namespace
}  // namespace tutti::comm::symm
