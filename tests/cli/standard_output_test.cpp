// Results that cannot be written are an error of every command.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "tests/cli/support/program.h"
#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"
#include "tutti/diagnose/flight_recorder.h"
#include "tutti/package/package.h"

namespace tutti::test {
namespace {

// One short call of each command that prints results.
const std::map<std::string, std::string> kCalls = {
    {"plan", "run.toml"},
    {"launch", "-n 2 -- echo result"},
    {"generate", "runs/run --max-tokens 2"},
    {"chat", "published --max-tokens 2 < line.txt"},
    {"serve", "published --port 0"},
    {"eval", "published --data data"},
    {"embed", "encoder text"},
    {"convert", "published model.gguf"},
    {"package inspect", "packaged"},
    {"package verify", "packaged"},
    {"package sign", "packaged --key private.pem"},
    {"package run", "packaged"},
    {"tokenizer encode", "byte text"},
    {"tokenizer decode", "byte 104"},
    {"checkpoint ls", "runs/run"},
    {"checkpoint verify", "runs/run"},
    {"checkpoint reshard", "runs/run resharded --files 2"},
    {"diff", "runs/run runs/run"},
    {"replay", "runs/run --from 3 --steps 1"},
    {"report", "runs/run"},
    {"bench ops", "--only 'gather in rows'"},
    {"bench trace", ""},
    {"bench gemm", "--m 8 --n 8 --k 8"},
    {"bench attention", "--length 8 --heads 1 --dim 8"},
    {"bench choice", ""},
    {"bench comm", "--op barrier"},
    {"bench package", "--only mlp --total-ms 1"},
    {"bench compile", "--model tiny --rows 1 --sequence-length 32"},
    {"demo bits", ""},
    {"bench generate", "llama/tiny -p 4 -n 2 -r 1"},
    {"bench layouts", "run.toml --steps 2 --only two-ranks"},
    {"bench loss", "--tokens 8 --features 8 --vocab 8 --repeats 1"},
    {"bench math", "--small --only atan2"},
    {"bench moe", "--tokens 8 --dim 8 --hidden-dim 8 --experts 2 --top-k 1 --total-ms 1"},
    {"bench codes", "--small --m 1 --n 8 --k 32 --length 4 --heads 1 --head-dim 8"},
    {"bench dlrm", "--tables 2 --rows 20 --dim 4 --bottom 4 --top 4 --batch 8 --steps 1"},
    {"bench embedding", "--total-ms 1 --tables 2 --rows 20 --bags 3"},
    {"bench quantized", "--small --only Q4_1 --m 1 --n 8 --k 256"},
    {"bench dtensor", "--small"},
    {"bench fsdp", "--small"},
    {"bench services", "--clients 2 --groups 2"},
    {"bench serve", "published --clients 1 --requests 1 --prompt-words 3 --max-tokens 2"},
    {"bench strict", "--small --only softmax"},
    {"bench train", "--model tiny --rows 1 --sequence-length 32 --steps 1"},
    {"env", ""},
    {"trace why", "flight_0"},
    {"trace merge", "merged.json runs/run/trace/rank-0.json"},
    {"explain rules", ""},
    {"explain layout", "'[5,4]@[S(0),S(1)]' --mesh 2x2"},
    {"explain sharding", "matmul --mesh 2 --inputs '[8,16]@[S(1)]' '[16,8]@[S(0)]'"},
};
// Talks on the error output only.
const std::vector<std::string> kWithoutResults = {"train", "tokenizer train", "checkpoint export"};

// The commands below `verb`, as its help lists them; `verb` itself where there are none.
std::vector<std::string> commands_below(const Workplace& work, const std::string& verb) {
  std::istringstream help(work.tutti(verb + " --help").out);
  std::vector<std::string> found;
  bool lists = false;
  for (std::string line; std::getline(help, line);) {
    if (lists && line.starts_with("  ") && line.size() > 2 && line[2] != ' ') {
      const std::string name = line.substr(2, line.find(' ', 2) - 2);
      for (std::string& below : commands_below(work, verb.empty() ? name : verb + " " + name))
        found.push_back(std::move(below));
    }
    lists = lists || line.starts_with("Subcommands:");
  }
  return found.empty() ? std::vector<std::string>{verb} : found;
}

void expect_refused(const Workplace& work, const std::string& call, int status) {
  const Output output = work.tutti(call + " > /dev/full 2> err.txt #");
  EXPECT_EQ(output.status, status) << call << "\n" << output.err;
  EXPECT_NE(output.err.find("the results are incomplete, because the standard output cannot be written"),
            std::string::npos)
      << call << "\n"
      << output.err;
}

struct FullOutput : testing::Test {
  FullOutput() {
    write_tiny_run(work);
    write_published_decoder(work);
    write_published_encoder(work);
    work.write("published/chat_template.jinja", "{% for m in messages %}{{ m.content }}\n{% endfor %}");
    work.write("line.txt", "the old river\n");
    // The example of RFC 8410.
    work.write("private.pem",
               "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
               "-----END PRIVATE KEY-----\n");
    package((work.folder() / "packaged").string(), [](const Tensor& x) { return x; }, {.name = "same"},
            Tensor::scalar(1.0f));
    const Output trained = work.tutti("train run.toml --quiet --profiler.enable=true");
    EXPECT_EQ(trained.status, 0) << trained.err;
    comm::FlightRecorder({.rank = 0, .world_size = 1, .prefix = (work.folder() / "flight_").string()}).dump("test");
  }
  Workplace work;
};

TEST_F(FullOutput, IsAnErrorOfEveryCommandThatPrintsResults) {
  for (const std::string& command : commands_below(work, "")) {
    if (std::ranges::find(kWithoutResults, command) != kWithoutResults.end()) continue;
    ASSERT_TRUE(kCalls.contains(command)) << "`tutti " << command << "` has no call in this test";
    const bool compares = command == "diff" || command == "replay";
    expect_refused(work, command + " " + kCalls.at(command), compares ? 125 : 1);
  }
}

TEST_F(FullOutput, IsAnErrorOfHelpAndVersion) {
  for (const char* call : {"--version", "--help", "train --help", "env --json", "bench comm --help"})
    expect_refused(work, call, 1);
}

TEST_F(FullOutput, IsNoErrorWhereNothingIsPrinted) {
  EXPECT_EQ(work.tutti("train run.toml --quiet --training.steps=8 > /dev/full 2> err.txt #").status, 0);
}

TEST_F(FullOutput, ClosedIsAnErrorToo) {
  const Output output = work.tutti("checkpoint ls runs/run >&- 2> err.txt #");
  EXPECT_EQ(output.status, 1) << output.err;
  EXPECT_NE(output.err.find("Bad file descriptor"), std::string::npos) << output.err;
}

}  // namespace
}  // namespace tutti::test
