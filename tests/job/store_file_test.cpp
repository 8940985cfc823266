// What only the file store has: processes, a file that can be damaged, and its end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>

#include "tests/job/support/temporary_folder.h"
#include "tests/support/file_size_limit.h"
#include "tutti/job/store/file_log.h"
#include "tutti/job/store/file_store.h"
#include "tutti/job/store/wire.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

template <class E, class Fn>
std::string message_of(const Fn& fn) {
  try {
    fn();
  } catch (const E& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

// Runs fn in a process of its own; it ends with status 0 when fn returns true.
pid_t start_process(const std::function<bool()>& fn) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  bool ok = false;
  try {
    ok = fn();
  } catch (const std::exception& error) {
    fprintf(stderr, "%s\n", error.what());
  }
  _exit(ok ? 0 : 1);
}

int status_of(pid_t pid) {
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

TEST(FileStore, FourProcessesShareOneFileAndTheLastDeletesIt) {
  TemporaryFolder folder;
  const std::string path = folder.file("store");
  std::vector<pid_t> processes;
  for (int rank = 0; rank < 4; ++rank) {
    processes.push_back(start_process([&] {
      FileStore store(path, 4, seconds(60));
      store.set("rank" + std::to_string(rank), std::string(1000, static_cast<char>('a' + rank)));
      for (int i = 0; i < 50; ++i) store.add("n", 1);
      store.append("log", std::to_string(rank));
      store.barrier("all", 4);
      bool ok = store.get("n") == "200" && store.get("log").size() == 4;
      for (int other = 0; other < 4; ++other) {
        ok = ok && store.get("rank" + std::to_string(other)) == std::string(1000, static_cast<char>('a' + other));
      }
      return ok;
    }));
  }
  for (const pid_t pid : processes) EXPECT_EQ(status_of(pid), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FileStore, AWriterKilledInTheMiddleOfARecordHarmsNobody) {
  TemporaryFolder folder;
  const std::string path = folder.file("store");
  FileStore store(path);
  store.set("a", "1");
  const auto whole = std::filesystem::file_size(path);
  store.set("b", std::string(1000, 'b'));
  const auto with_b = std::filesystem::file_size(path);
  // Every way in which a record can be cut short.
  for (auto size = whole; size < with_b; size += size < whole + 20 ? 1 : 97) {
    const std::string copy = folder.file("copy");
    std::filesystem::copy_file(path, copy, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(copy, size);
    FileStore other(copy);
    EXPECT_EQ(other.list_keys(), Store::Keys{"a"}) << "cut to " << size;
    other.set("c", "3");
    FileStore third(copy);
    EXPECT_EQ(third.multi_get({"a", "c"}), (std::vector<std::string>{"1", "3"})) << "cut to " << size;
  }
}

TEST(FileStore, AFileThatMayNotGrowIsAnErrorAndStaysWhole) {
  TemporaryFolder folder;
  const std::string path = folder.file("store");
  FileStore store(path);
  store.set("a", "1");
  for (const rlim_t more : {0u, 1u, 40u, 500u}) {
    std::string text;
    {
      const testing::FileSizeLimit limit(std::filesystem::file_size(path) + more);
      text = message_of<EnvironmentError>([&] { store.set("b", std::string(1000, 'b')); });
    }
    EXPECT_NE(text.find("cannot write '" + path + "': File too large"), std::string::npos) << text;
    EXPECT_EQ(FileStore(path).list_keys(), Store::Keys{"a"});
  }
  store.set("b", "2");
  EXPECT_EQ(FileStore(path).multi_get({"a", "b"}), (std::vector<std::string>{"1", "2"}));
}

TEST(FileStore, AKilledOwnerOfTheLockReleasesIt) {
  TemporaryFolder folder;
  const std::string path = folder.file("store");
  FileStore store(path, 0, seconds(20));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t pid = start_process([&] {
    FileLog log(path);
    const FileLog::Lock lock(log, StoreDeadline(seconds(20)));
    if (write(ready[1], "x", 1) != 1) return false;
    pause();
    return true;
  });
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  store.set_timeout(milliseconds(30));
  EXPECT_NE(message_of<StoreTimeout>([&] { store.set("k", "v"); }).find("another process held its lock"),
            std::string::npos);
  kill(pid, SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(status_of(pid)));
  store.set_timeout(seconds(20));
  store.set("k", "v");
  EXPECT_EQ(store.get("k"), "v");
  close(ready[0]);
  close(ready[1]);
}

TEST(FileStore, DamageIsNoticed) {
  TemporaryFolder folder;
  const std::string path = folder.file("store");
  FileStore(path).set("key", "value");
  const auto write_at = [&](std::streamoff at, const std::string& bytes) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at);
    file << bytes;
  };
  write_at(16 + 3, "?");
  std::string text = message_of<EnvironmentError>([&] { FileStore store(path); });
  EXPECT_NE(text.find("a damaged record at byte"), std::string::npos) << text;
  write_at(8, "\xff\xff\xff\xff");
  text = message_of<EnvironmentError>([&] { FileStore store(path); });
  EXPECT_NE(text.find("a record larger than any at byte 0"), std::string::npos) << text;
  const std::string other = folder.file("letter");
  std::ofstream(other) << "Dear reader, this is not the file of any store.";
  text = message_of<EnvironmentError>([&] { FileStore store(other); });
  EXPECT_NE(text.find("no record at byte 0; is it a file of a store?"), std::string::npos) << text;
  EXPECT_THROW(FileStore(folder.file("no/such/folder")), EnvironmentError);
  EXPECT_THROW(FileStore("/dev/null"), EnvironmentError);
}

TEST(FileStore, AFileLeftFromAnEarlierJobIsAnError) {
  TemporaryFolder folder;
  const std::string path = folder.file("store");
  auto a = std::make_unique<FileStore>(path, 2);
  const std::shared_ptr<Store> clone = a->clone();
  auto b = std::make_unique<FileStore>(path, 2);
  const std::string text = message_of<UsageError>([&] { FileStore(path, 2); });
  EXPECT_NE(text.find("2 have joined already and the world size is 2"), std::string::npos) << text;
  b.reset();
  a.reset();
  EXPECT_TRUE(std::filesystem::exists(path)) << "a clone still uses it";
}

TEST(FileStore, ADeletedFileIsNoticed) {
  TemporaryFolder folder;
  FileStore store(folder.file("store"));
  std::filesystem::remove(folder.file("store"));
  const std::string text = message_of<EnvironmentError>([&] { store.set("k", "v"); });
  EXPECT_NE(text.find("the file was deleted while in use"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::comm
