// URLs and launchers' variables, and the errors when they say nothing or two things.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <future>
#include <map>

#include <sys/stat.h>

#include "tests/job/support/temporary_folder.h"
#include "tutti/job/rendezvous/init_url.h"
#include "tutti/job/rendezvous/launch_variables.h"
#include "tutti/job/rendezvous/rendezvous.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/key_proof.h"
#include "tutti/job/store/tcp_store.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

constexpr const char* kNames[] = {"TUTTI_RANK",
                                  "TUTTI_WORLD_SIZE",
                                  "TUTTI_LOCAL_RANK",
                                  "TUTTI_LOCAL_WORLD_SIZE",
                                  "RANK",
                                  "WORLD_SIZE",
                                  "LOCAL_RANK",
                                  "LOCAL_WORLD_SIZE",
                                  "MASTER_ADDR",
                                  "MASTER_PORT",
                                  "OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALRANKID",
                                  "MPI_LOCALNRANKS",
                                  "SLURM_PROCID",
                                  "SLURM_NTASKS",
                                  "SLURM_LOCALID",
                                  "SLURM_JOB_NODELIST",
                                  "SLURM_STEP_NODELIST",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "SLURM_STEP_NUM_NODES",
                                  "SLURM_NNODES",
                                  "TUTTI_STORE_HOSTED",
                                  "TUTTI_STORE_PORT",
                                  "TORCHELASTIC_USE_AGENT_STORE",
                                  "TUTTI_JOB_KEY",
                                  "TUTTI_JOB_KEY_FILE"};

// An environment with these variables of launchers and no others.
class StoreRendezvous : public testing::Test {
 protected:
  StoreRendezvous() {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name)) before_[name] = value;
    }
    use({});
  }
  ~StoreRendezvous() override { use(before_); }
  static void use(const std::map<std::string, std::string>& variables) {
    for (const char* name : kNames) unsetenv(name);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }

  template <class Fn>
  static std::string usage_error(const Fn& fn) {
    try {
      fn();
    } catch (const UsageError& error) {
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return "";
  }
  static void expect_part(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
  static std::string free_port() { return std::to_string(TcpStoreServer({.job_key = ""}).port()); }

 private:
  std::map<std::string, std::string> before_;
};

TEST_F(StoreRendezvous, UrlsAreTakenApart) {
  const InitUrl tcp = parse_init_url("tcp://[::1]:29500?rank=1&world_size=4");
  EXPECT_EQ(tcp.host, "::1");
  EXPECT_EQ(tcp.port, 29500);
  EXPECT_EQ(tcp.rank, 1);
  EXPECT_EQ(tcp.world_size, 4);
  EXPECT_EQ(parse_init_url("tcp://host:1/").host, "host");
  EXPECT_EQ(parse_init_url("file:///tmp/a%20b?rank=0").path, "/tmp/a b");
}

TEST_F(StoreRendezvous, BadUrlsSayWhatIsMissing) {
  const std::map<std::string, std::string> wrong = {
      {"", "has no scheme"},
      {"tcq://host:1", "no handler: unknown scheme 'tcq'; did you mean 'tcp'? Known: env, tcp, file"},
      {"tcp://:29500", "the host is missing"},
      {"tcp://host", "the port is missing"},
      {"tcp://host:", "the port is missing"},
      {"tcp://[::1]", "the port is missing"},
      {"tcp://host:0", "the port is '0'; expected a whole number from 1 to 65535"},
      {"tcp://host:99999", "the port is '99999'"},
      {"tcp://host:1?rang=0", "unknown parameter 'rang'; did you mean 'rank'?"},
      {"tcp://host:1?rank=x", "rank is 'x'"},
      {"tcp://host:1?rank=0&rank=0", "rank is given twice"},
      {"tcp://host:1?world_size=0", "world_size is '0'"},
      {"file://", "the path is missing or not absolute"},
      {"file://relative/path", "the path is missing or not absolute"},
      {"file:///a%2", "two hexadecimal digits"},
      {"env://host", "takes no host or path"},
  };
  for (const auto& [url, part] : wrong) {
    expect_part(usage_error([&] { parse_init_url(url); }), part);
  }
}

TEST_F(StoreRendezvous, RankAndWorldSizeComeFromOnePlace) {
  expect_part(usage_error([] { rendezvous("tcp://127.0.0.1:1?rank=0&world_size=2", {.rank = 0}); }),
              "rank is given in the URL (0) and as an argument (0)");
  expect_part(usage_error([] { rendezvous("tcp://127.0.0.1:1?rank=0"); }), "the world size is missing");
  expect_part(usage_error([] { rendezvous("tcp://127.0.0.1:1", {.world_size = 2}); }), "the rank is missing");
  expect_part(usage_error([] { rendezvous("file:///tmp/x?rank=2&world_size=2"); }), "the rank is 2");
  expect_part(usage_error([] { rendezvous("tcp://127.0.0.1:1?rank=0&world_size=65537"); }),
              "the world size is 65537; it must be 65536 or less");
  expect_part(usage_error([] { rendezvous(nullptr, 0, 1); }), "nullptr");
}

TEST_F(StoreRendezvous, TcpRanksMeetOnThePortOfTheUrl) {
  const std::string url = "tcp://127.0.0.1:" + free_port();
  auto other = std::async(std::launch::async, [&] {
    const Rendezvous mine = rendezvous(url + "?rank=1&world_size=2");
    EXPECT_EQ(mine.server, nullptr);
    mine.store->barrier("start", 2);
  });
  const Rendezvous mine = rendezvous(url, {.rank = 0, .world_size = 2});
  ASSERT_NE(mine.server, nullptr);
  mine.store->barrier("start", 2);
  other.get();
}

TEST_F(StoreRendezvous, FileRanksMeetInTheFile) {
  TemporaryFolder folder;
  const std::string url = "file://" + folder.file("store") + "?world_size=2";
  const Rendezvous a = rendezvous(url, {.rank = 0}), b = rendezvous(url, {.rank = 1});
  a.store->set("k", "v");
  EXPECT_EQ(b.store->get("k"), "v");
  EXPECT_EQ(b.rank, 1);
}

TEST_F(StoreRendezvous, AStoreThatIsThereIsTaken) {
  auto store = std::make_shared<HashStore>();
  const Rendezvous mine = rendezvous(store, 1, 2);
  EXPECT_EQ(mine.store, store);
  EXPECT_EQ(mine.world_size, 2);
}

TEST_F(StoreRendezvous, EveryLauncherIsUnderstood) {
  use({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}});
  EXPECT_EQ(read_launch_place(), (LaunchPlace{3, 8, 1, 2, "torchrun"}));
  use({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_EQ(read_launch_place(), (LaunchPlace{1, 2, 0, {}, "Open MPI"}));
  use({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}});
  EXPECT_EQ(read_launch_place(), (LaunchPlace{1, 2, 1, {}, "MPICH"}));
  use({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "6"}, {"SLURM_LOCALID", "2"}});
  EXPECT_EQ(read_launch_place(), (LaunchPlace{5, 6, 2, {}, "Slurm"}));
  use({});
  EXPECT_EQ(read_launch_place(), std::nullopt);
}

TEST_F(StoreRendezvous, TheInnermostLauncherCounts) {
  use({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(read_launch_place()->rank, 3);
  use({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(read_launch_place()->launcher, "Open MPI");
  use({{"TUTTI_RANK", "1"}, {"TUTTI_WORLD_SIZE", "2"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}});
  EXPECT_EQ(read_launch_place(), (LaunchPlace{1, 2, 1, {}, "Tutti"}));
  use({{"SLURM_PROCID", "0"}});
  EXPECT_EQ(read_launch_place(), std::nullopt);
}

TEST_F(StoreRendezvous, ContradictionsAreErrors) {
  use({{"TUTTI_RANK", "1"}, {"TUTTI_WORLD_SIZE", "2"}, {"RANK", "0"}, {"WORLD_SIZE", "2"}});
  expect_part(usage_error([] { read_launch_place(); }), "TUTTI_RANK is 1 but RANK is 0");
  use({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}});
  expect_part(usage_error([] { read_launch_place(); }), "OMPI_COMM_WORLD_SIZE is 2 but PMI_SIZE is 4");
  use({{"RANK", "1"}});
  expect_part(usage_error([] { read_launch_place(); }), "RANK is set but WORLD_SIZE is not");
  use({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
  expect_part(usage_error([] { read_launch_place(); }), "RANK is 2 but WORLD_SIZE is 2");
  use({{"RANK", "one"}, {"WORLD_SIZE", "2"}});
  expect_part(usage_error([] { read_launch_place(); }), "RANK is 'one'");
  use({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  expect_part(usage_error([] { rendezvous("env://", {.rank = 0}); }),
              "the caller says rank 0 of 2, torchrun says rank 1");
}

TEST_F(StoreRendezvous, MissingVariablesAreNamed) {
  expect_part(usage_error([] { rendezvous(); }), "started by no launcher");
  use({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  expect_part(usage_error([] { rendezvous(); }), "MASTER_ADDR is not set");
  use({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}});
  expect_part(usage_error([] { rendezvous(); }), "MASTER_PORT is not set");
  use({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "70000"}});
  expect_part(usage_error([] { rendezvous(); }), "MASTER_PORT is 70000");
  use({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "192.0.2.1"}, {"MASTER_PORT", "29500"}});
  expect_part(usage_error([] { rendezvous(); }), "listening on 192.0.2.1:29500 needs a job key");
}

TEST_F(StoreRendezvous, RankZeroServesUnlessTheLauncherDoes) {
  use({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_NE(rendezvous().server, nullptr);
  TcpStoreServer server({.job_key = ""});
  const std::string port = std::to_string(server.port());
  use({{"RANK", "0"},
       {"WORLD_SIZE", "2"},
       {"MASTER_ADDR", "127.0.0.1"},
       {"MASTER_PORT", port},
       {"TUTTI_STORE_HOSTED", "1"}});
  const Rendezvous hosted = rendezvous();
  EXPECT_EQ(hosted.server, nullptr);
  hosted.store->set("k", "v");
  setenv("TUTTI_STORE_HOSTED", "maybe", 1);
  expect_part(usage_error([] { rendezvous(); }), "TUTTI_STORE_HOSTED is 'maybe'");
}

TEST_F(StoreRendezvous, UnderTorchrunItsOwnStoreIsLeftAlone) {
  std::map<std::string, std::string> variables = {{"RANK", "0"},
                                                  {"WORLD_SIZE", "1"},
                                                  {"MASTER_ADDR", "127.0.0.1"},
                                                  {"MASTER_PORT", "29500"},
                                                  {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  use(variables);
  expect_part(usage_error([] { rendezvous(); }),
              "torchrun serves its own store at 127.0.0.1:29500, which speaks PyTorch's protocol and not Tutti's; set "
              "TUTTI_STORE_PORT to another free port");
  for (const char* no : {"False", "0"}) {
    variables["TORCHELASTIC_USE_AGENT_STORE"] = no;  // rank 0 is to serve one
    use(variables);
    EXPECT_FALSE(read_meeting_point(*read_launch_place()).is_hosted);
  }
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  variables["TUTTI_STORE_PORT"] = free_port();
  use(variables);
  const MeetingPoint point = read_meeting_point(*read_launch_place());
  EXPECT_FALSE(point.is_hosted);
  EXPECT_EQ(std::to_string(point.port), variables["TUTTI_STORE_PORT"]);
  EXPECT_NE(rendezvous().server, nullptr);
}

TEST_F(StoreRendezvous, RanksOfOneHostNeedNoPort) {
  std::map<std::string, std::string> variables = {
      {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  use(variables);
  EXPECT_STREQ(read_meeting_point(*read_launch_place()).rank_variable, "OMPI_COMM_WORLD_RANK");
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  use(variables);
  expect_part(usage_error([] { read_meeting_point(*read_launch_place()); }),
              "MASTER_ADDR is not set; set it to the host of rank 0");
  variables["MASTER_ADDR"] = "node1";
  variables["MASTER_PORT"] = "7000";
  use(variables);
  EXPECT_EQ(read_meeting_point(*read_launch_place()).rank_variable, nullptr);
  use({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_STREQ(read_meeting_point(*read_launch_place()).rank_variable, "PMI_RANK");
  use({{"SLURM_PROCID", "1"},
       {"SLURM_NTASKS", "4"},
       {"SLURM_JOB_NODELIST", "node7"},
       {"SLURM_JOB_ID", "5"},
       {"SLURM_STEP_NUM_NODES", "1"},
       {"SLURM_NNODES", "3"}});
  EXPECT_STREQ(read_meeting_point(*read_launch_place()).rank_variable, "SLURM_PROCID");
}

TEST_F(StoreRendezvous, SlurmTellsHostAndPort) {
  EXPECT_EQ(slurm_first_host("node1"), "node1");
  EXPECT_EQ(slurm_first_host("a1,b2"), "a1");
  EXPECT_EQ(slurm_first_host("node[03-05,9],gpu1"), "node03");
  EXPECT_EQ(slurm_first_host("rack[2,4]-node[10-12].site"), "rack2-node10.site");
  expect_part(usage_error([] { slurm_first_host("node[1-2"); }), "does not close");
  expect_part(usage_error([] { slurm_first_host(""); }), "names none");
  use({{"SLURM_PROCID", "1"},
       {"SLURM_NTASKS", "4"},
       {"SLURM_JOB_NODELIST", "node[07-08]"},
       {"SLURM_JOB_ID", "123456"},
       {"SLURM_STEP_ID", "2"}});
  const MeetingPoint point = read_meeting_point(*read_launch_place());
  EXPECT_EQ(point.host, "node07");
  EXPECT_EQ(point.port, 24562);
}

TEST_F(StoreRendezvous, TheJobKeyComesFromVariableOrFile) {
  EXPECT_EQ(read_job_key(), "");
  const std::string key = make_job_key();
  use({{"TUTTI_JOB_KEY", key}});
  EXPECT_EQ(read_job_key(), key);
  TemporaryFolder folder;
  const std::string path = folder.file("key");
  std::ofstream(path) << key << "\n";
  chmod(path.c_str(), 0600);
  use({{"TUTTI_JOB_KEY_FILE", path}});
  EXPECT_EQ(read_job_key(), key);
  chmod(path.c_str(), 0644);
  expect_part(usage_error([] { read_job_key(); }), "can be read by every user of this host");
  use({{"TUTTI_JOB_KEY", key}, {"TUTTI_JOB_KEY_FILE", path}});
  expect_part(usage_error([] { read_job_key(); }), "both TUTTI_JOB_KEY and TUTTI_JOB_KEY_FILE are set");
  use({{"TUTTI_JOB_KEY", "short"}});
  expect_part(usage_error([] { read_job_key(); }), "the job key has 5 bytes; it needs 16 to 4096");
  use({{"TUTTI_JOB_KEY", ""}});
  expect_part(usage_error([] { read_job_key(); }), "set but empty");
  use({{"TUTTI_JOB_KEY_FILE", folder.file("none")}});
  EXPECT_THROW(read_job_key(), EnvironmentError);
}

TEST_F(StoreRendezvous, ServerAndClientsTakeTheKeyFromTheEnvironment) {
  use({{"TUTTI_JOB_KEY", make_job_key()}});
  const std::string url = "tcp://127.0.0.1:" + free_port() + "?world_size=2";
  const Rendezvous a = rendezvous(url, {.rank = 0}), b = rendezvous(url, {.rank = 1});
  a.store->set("k", "v");
  EXPECT_EQ(b.store->get("k"), "v");
  expect_part(usage_error([&] { rendezvous(url, {.rank = 1, .job_key = make_job_key()}); }), "it has another job key");
}

}  // namespace
}  // namespace tutti::comm
