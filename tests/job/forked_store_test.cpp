// Stores in a fork()ed child: each refuses the child's calls, and goes on in the parent when the child drops it.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <thread>

#include "tests/job/support/forked.h"
#include "tests/job/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/job/store/file_store.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

bool in_child(const std::function<bool()>& fn) {
  return run_in_processes(1, [&](int) { TUTTI_CHECK(fn(), "not as expected"); })[0] == 0;
}

bool is_refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return std::string(error.what()).find("and this is its fork()ed child") != std::string::npos;
  }
  return false;
}

bool all_refused(Store& store) {
  const std::map<std::string, std::function<void()>> calls = {
      {"set", [&] { store.set("k", "v"); }},
      {"get", [&] { store.get("k", 1s); }},
      {"add", [&] { store.add("n", 1); }},
      {"compare_set", [&] { store.compare_set("k", "", "v"); }},
      {"delete_key", [&] { store.delete_key("k"); }},
      {"check", [&] { store.check({"k"}); }},
      {"wait", [&] { store.wait({"k"}, 1s); }},
      {"num_keys", [&] { store.num_keys(); }},
      {"append", [&] { store.append("k", "v"); }},
      {"multi_get", [&] { store.multi_get({"k"}, 1s); }},
      {"multi_set", [&] { store.multi_set({"k"}, {"v"}); }},
      {"list_keys", [&] { store.list_keys(); }},
      {"barrier", [&] { store.barrier("b", 1, 1s); }},
  };
  bool all = true;
  for (const auto& [name, call] : calls) {
    if (is_refused(call)) continue;
    fprintf(stderr, "%s was carried out in a child\n", name.c_str());
    all = false;
  }
  return all;
}

void check(std::shared_ptr<Store> store) {
  store->set("k", "1");
  EXPECT_TRUE(in_child([&] { return all_refused(*store); }));
  EXPECT_TRUE(in_child([&] {
    store = nullptr;
    return true;
  }));
  EXPECT_TRUE(in_child([&] { return all_refused(*store) && (store = nullptr, true); }));
  // While another thread of the parent waits in it.
  const std::shared_ptr<Store> waits = store->clone();
  std::thread other([&] { waits->wait({"later"}, 60s); });
  EXPECT_TRUE(in_child([&] { return all_refused(*store) && (store = nullptr, true); }));
  store->set("later", "1");
  other.join();
  EXPECT_EQ(store->add("n", 1), 1);
  EXPECT_EQ(store->get("k"), "1");
}

TEST(ForkedStore, OfAProcessIsRefused) { check(std::make_shared<HashStore>()); }

TEST(ForkedStore, OfAFileIsRefused) {
  const TemporaryFolder folder;
  check(std::make_shared<FileStore>(folder.file("store")));
}

// The last one that goes deletes the file.
TEST(ForkedStore, OfAFileThatItsLastUserDeletesStaysWithTheParent) {
  const TemporaryFolder folder;
  check(std::make_shared<FileStore>(folder.file("store"), 1));
  EXPECT_FALSE(std::filesystem::exists(folder.file("store")));
}

TEST(ForkedStore, OverTcpIsRefused) {
  auto server = std::make_unique<TcpStoreServer>(TcpStoreServerOptions{.bind_address = "127.0.0.1", .job_key = ""});
  const auto store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server->port(), .job_key = ""});
  check(store);
  EXPECT_TRUE(in_child([&] {
    server = nullptr;
    return true;
  }));
  EXPECT_TRUE(in_child([&] { return store->clone()->get("k") == "1"; })) << "a connection of its own";
  EXPECT_EQ(store->get("k"), "1");
}

}  // namespace
}  // namespace tutti::comm
