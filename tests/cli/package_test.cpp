// `tutti package` as a user runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <map>
#include <thread>

#include "tests/cli/support/program.h"
#include "tests/cli/support/published.h"
#include "tests/cli/support/served.h"
#include "tests/cli/support/tiny_run.h"
#include "tests/package/support/packaged_cases.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/rank_group.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

using package_test::Block;
using package_test::for_this_processor;
using package_test::values;

struct PackageCommand : ::testing::Test {
  PackageCommand() {
    package((work.folder() / "block").string(), Block(),
            for_this_processor("block", {{.name = "tokens", .dims = {{0, 1}}, .least = 2, .most = 5}}),
            values(1, {2, 4, 16}));
  }
  void expect_out(const std::string& arguments, std::initializer_list<const char*> texts) {
    const Output output = work.tutti("package " + arguments);
    EXPECT_EQ(output.status, 0) << output.err;
    for (const char* text : texts)
      EXPECT_NE(output.out.find(text), std::string::npos) << text << " is not in\n" << output.out;
  }
  void expect_error(const std::string& arguments, int status, const char* text) {
    const Output output = work.tutti("package " + arguments);
    EXPECT_EQ(output.status, status) << output.out;
    EXPECT_NE(output.err.find(text), std::string::npos) << text << " is not in\n" << output.err;
  }
  Workplace work;
};

TEST_F(PackageCommand, InspectTellsWhatThePackageHolds) {
  expect_out("inspect block",
             {"block: made by Tutti", "argument 0: f32 [2, tokens, 16]", "tokens: 2 to 5 in steps of 1",
              "result 0: f32", "calls sdpa, schema ", "AVX2, FMA, BMI2", "section constants: "});
  expect_out("inspect block --plans", {"call sdpa"});
  expect_out("inspect block --json",
             {"\"function\":\"block\"", "\"combinations\":4", "\"inputs\":[\"f32 [2, tokens, 16]\"]"});
}

TEST_F(PackageCommand, VerifyChecksBytesAndPlans) {
  expect_out("verify block", {"block: whole, plans of 4 combinations of sizes"});
  expect_out("verify block --json", {"{\"path\":\"block\",\"combinations\":4}"});
  std::string bytes = work.read("block");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  work.write("damaged", bytes);
  expect_error("verify damaged", 1, "are damaged; copy the file again");
  expect_error("verify nowhere", 1, "cannot open the package nowhere");
}

// OpenSSL's own program makes the keys, accepts what Tutti signs, and signs what Tutti accepts.
struct PackageSignature : PackageCommand {
  void SetUp() override {
    if (work.run("command -v openssl").status != 0) GTEST_SKIP() << "the program openssl is not installed";
    if (work.tutti("package sign block --key nowhere.pem").err.find("built without OpenSSL") != std::string::npos)
      GTEST_SKIP() << "this build has no libcrypto";
    make_key("private", "public"), make_key("other", "other-public");
  }
  void make_key(const std::string& secret, const std::string& open) const {
    require("openssl genpkey -algorithm ed25519 -out " + secret + ".pem");
    require("openssl pkey -in " + secret + ".pem -pubout -out " + open + ".pem");
  }
  void require(const std::string& command) const {
    const Output output = work.run(command);
    ASSERT_EQ(output.status, 0) << command << "\n" << output.out << output.err;
  }
};

TEST_F(PackageSignature, IsThatOfOpenssl) {
  expect_out("sign block --key private.pem", {"block.sig: signature of block"});
  EXPECT_EQ(work.read("block.sig").size(), 64u);
  expect_out("verify block --public-key public.pem",
             {"block: whole, plans of 4 combinations", "block.sig: signed with the private key of public.pem"});
  expect_out("verify block --public-key public.pem --json",
             {"{\"path\":\"block\",\"combinations\":4,\"signature\":\"block.sig\"}"});
  require("openssl pkeyutl -verify -rawin -pubin -inkey public.pem -in block -sigfile block.sig");
  require("openssl pkeyutl -sign -rawin -inkey private.pem -in block -out theirs.sig");
  EXPECT_EQ(work.read("theirs.sig"), work.read("block.sig"));
  expect_out("verify block --public-key public.pem --signature theirs.sig", {"theirs.sig: signed with"});
  expect_out("sign block --key other.pem --signature other.sig --json", {"\"signature\":\"other.sig\""});
  expect_out("verify block --public-key other-public.pem --signature other.sig", {"other.sig: signed with"});
}

TEST_F(PackageSignature, OfOtherBytesKeysAndSizesIsRefused) {
  expect_out("sign block --key private.pem", {"block.sig"});
  expect_error("verify block --public-key other-public.pem", 1,
               "block: block.sig is not the signature of these bytes by the key other-public.pem");
  // Another whole package in its place; damage is found by the signature, too, before the file is opened.
  package((work.folder() / "swapped").string(), Block(DType::bf16), for_this_processor("block"),
          values(1, {2, 4, 16}, DType::bf16));
  expect_error("verify swapped --public-key public.pem --signature block.sig", 1,
               "swapped: block.sig is not the signature of these bytes");
  std::string bytes = work.read("block");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  work.write("damaged", bytes);
  expect_error("verify damaged --public-key public.pem --signature block.sig", 1, "is not the signature");
  expect_error("sign damaged --key private.pem", 1, "are damaged; copy the file again");
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "damaged.sig"));
  std::string signature = work.read("block.sig");
  work.write("short.sig", signature.substr(0, 63));
  expect_error("verify block --public-key public.pem --signature short.sig", 1,
               "short.sig has 63 bytes, and a signature with Ed25519 64");
  work.write("empty.sig", "");
  expect_error("verify block --public-key public.pem --signature empty.sig", 1, "empty.sig has 0 bytes");
  signature[5] = static_cast<char>(signature[5] ^ 4);
  work.write("changed.sig", signature);
  expect_error("verify block --public-key public.pem --signature changed.sig", 1, "is not the signature");
  expect_error("verify swapped --public-key public.pem", 1,
               "swapped has no signature swapped.sig; get it from who made the package");
  for (const std::string input : {"private.pem", "block"})
    expect_error("sign block --key private.pem --signature " + input, 2,
                 ("the signature would take the place of " + input).c_str());
  expect_out("verify block --public-key public.pem", {"block: whole"});
  expect_error("verify block --signature block.sig", 2, "give --public-key public.pem");
}

TEST_F(PackageSignature, TakesKeysOfEd25519Only) {
  require("openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa.pem");
  require("openssl pkey -in rsa.pem -pubout -out rsa-public.pem");
  require("openssl pkey -in private.pem -aes256 -passout pass:secret -out protected.pem");
  expect_out("sign block --key private.pem", {"block.sig"});
  expect_error("sign block --key rsa.pem", 2,
               "rsa.pem holds a private key of RSA, and packages are signed with Ed25519; make one: openssl genpkey "
               "-algorithm ed25519");
  expect_error("verify block --public-key rsa-public.pem", 2, "rsa-public.pem holds a public key of RSA");
  expect_error("sign block --key protected.pem", 2, "protected.pem is protected by a passphrase");
  expect_error("sign block --key public.pem", 2, "public.pem holds no private key in PEM");
  expect_error("verify block --public-key private.pem", 2, "private.pem holds no public key in PEM; take it from");
  expect_error("sign block --key block", 2, "bytes; expected a private key in PEM");
  expect_error("sign block --key nowhere.pem", 1, "cannot open 'nowhere.pem'");
  expect_error("sign nowhere --key private.pem", 1, "cannot open the package nowhere");
  expect_error("published small --sign-key rsa.pem", 2, "rsa.pem holds a private key of RSA");
}

// Groups of ranks, as a function with collectives has them.
TEST(PackageWithGroups, InspectTellsThemAndRunAsksForThem) {
  const Workplace work;
  comm::run_ranks(1, [&](comm::ProcessGroup& group) {
    PackageOptions options = for_this_processor("gathered");
    options.groups = {comm::rank_group(group.shared_from_this())};
    package((work.folder() / "gathered").string(),
            [&](const Tensor& x) {
              return comm::functional::all_gather_single(comm::functional::all_reduce(x, "sum", group), 0, group);
            },
            options, values(1, {2, 4}));
  });
  const Output inspected = work.tutti("package inspect gathered"), json = work.tutti("package inspect gathered --json");
  for (const char* text : {"  group '0' of 1 ranks, the same file for all of them\n",
                           "  communicates by all_gather_single, all_reduce\n", "calls all_reduce, schema "})
    EXPECT_NE(inspected.out.find(text), std::string::npos) << inspected.out;
  for (const char* text :
       {"\"groups\":[{\"name\":\"0\",\"ranks\":1,\"rank\":-1}]", "\"collectives\":\"all_gather_single, all_reduce\""})
    EXPECT_NE(json.out.find(text), std::string::npos) << json.out;
  EXPECT_EQ(work.tutti("package verify gathered").status, 0);
  const Output run = work.tutti("package run gathered");
  EXPECT_EQ(run.status, 2);
  EXPECT_NE(run.err.find("gathered communicates with the 1 ranks of group '0'; start them: tutti launch -n 1 -- "),
            std::string::npos)
      << run.err;
}

// Each rank adds its number, and the results are those of all: the file of a rank is its own. The processes that run it
// have made no such call before.
TEST(PackageWithGroups, RunsOnTheRanksThatALauncherStarts) {
  const Workplace work;
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    PackageOptions options = for_this_processor("gathered");
    options.groups = {comm::rank_group(group.shared_from_this())};
    const Tensor number = full({2, 3}, group.rank() + 1.0);
    package((work.folder() / fmt::format("gathered.{}", group.rank())).string(),
            [&](const Tensor& x) {
              const Tensor sum = comm::functional::all_reduce(add(x, number), "sum", group);
              return comm::functional::all_gather_single(comm::functional::all_reduce(sum, "max", group), 0, group);
            },
            options, values(1, {2, 3}));
  });
  const Output output = work.tutti("launch -n 2 -- " TUTTI_BINARY_DIR "/tutti package run 'gathered.{rank}'");
  EXPECT_EQ(output.status, 0) << output.err;
  std::string digests[2];
  for (int r = 0; r < 2; ++r) {
    const std::string begin = fmt::format("rank {}: f32 [4, 3] ", r);
    const size_t at = output.out.find(begin);
    ASSERT_NE(at, std::string::npos) << output.out;
    digests[r] = output.out.substr(at + begin.size(), 32);
  }
  EXPECT_EQ(digests[0], digests[1]);
  const Output wrong = work.tutti("launch -n 2 -- " TUTTI_BINARY_DIR "/tutti package run gathered.0");
  EXPECT_EQ(wrong.status, 2) << wrong.out;
  EXPECT_NE(wrong.err.find("gathered: this file is that of rank 0 of group '0', and this is rank 1"), std::string::npos)
      << wrong.err;
}

TEST_F(PackageCommand, RunCallsTheFunction) {
  expect_out("run block", {"f32 [2, 2, 16] ", "open to first result"});
  expect_out("run block --size tokens=5 --repeats 3 --json", {"\"sizes\":[2,5,16]", "\"first_result_ms\":"});
  EXPECT_EQ(work.tutti("package run block --json --size tokens=4").out.substr(0, 2), "{\"");
  expect_error("run block --size tokens=6", 2, "argument 0, dim 1 is 6, and 'tokens' is from 2 to 5");
  expect_error("run block --size length=2", 2, "--size length=2: expected NAME=NUMBER");
  expect_error("run block --size tokens=two", 2, "--size tokens=two: expected NAME=NUMBER");
}

TEST(PackagedModel, WritesTheTextsOfTheModelWithoutItsWeights) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  const Output made = work.tutti("package published small --context 100");
  ASSERT_EQ(made.status, 0) << made.err;
  for (const char* text :
       {"combinations of sizes proved", "constants and state: ", " before equal ones were put togeth"})
    EXPECT_NE(made.out.find(text), std::string::npos) << made.out;
  for (const auto& entry : std::filesystem::directory_iterator(work.folder()))
    EXPECT_EQ(entry.path().filename().string().find("small."), std::string::npos) << entry.path();
  for (const char* flags : {"--temperature 0", "--temperature 1.2 --seed 4", "--temperature 0.8 --top-k 5 --seed 9"}) {
    for (const char* prompt : {"a", "the old river runs to the sea, and the sea is old, and the sea runs"}) {
      const std::string rest = fmt::format(" --prompt '{}' --max-tokens 12 {}", prompt, flags);
      const Output live = work.tutti("generate published" + rest), packaged = work.tutti("generate small" + rest);
      EXPECT_EQ(packaged.status, 0) << packaged.err;
      EXPECT_EQ(packaged.out, live.out) << rest;
    }
  }
  const auto refusal = [&](const std::string& arguments, int status = 2) {
    const Output output = work.tutti(arguments);
    EXPECT_EQ(output.status, status) << output.out;
    return output.err;
  };
  for (const char* verb : {"eval small --data text.txt", "package small other", "convert small other",
                           "checkpoint ls small", "checkpoint export small other.safetensors"})
    EXPECT_NE(refusal(verb).find("small is a packaged model, whose weights are in small/decode.tutti"),
              std::string::npos)
        << refusal(verb);
  EXPECT_NE(refusal("diff small small", 125).find("small is a packaged model"), std::string::npos);
  EXPECT_NE(refusal("eval small --data text.txt").find("`tutti chat` and `tutti serve` write texts with it"),
            std::string::npos);
  EXPECT_NE(refusal("serve small --port 0 --cache-mbytes 7")
                .find("serve: small is a packaged model, whose cache was chosen when it was packaged"),
            std::string::npos);
  EXPECT_NE(refusal("generate small --prompt a --compile").find("small is a packaged model"), std::string::npos);
  EXPECT_NE(refusal("package published small").find("small exists already"), std::string::npos);
  EXPECT_NE(refusal("package nowhere other").find("nowhere is no published model and no run"), std::string::npos);
  EXPECT_NE(refusal("package").find("give a model and a new folder"), std::string::npos);
}

// Six steps of training, then the texts of the run from a package: within its sequences of 32 tokens and beyond them.
TEST(PackagedRun, WritesTheTextsOfTheRun) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  // The last has the description of a published model, which the run keeps.
  const std::map<std::string, std::string> settings{
      {"f32", ""},
      {"bf16", " --training.mixed_precision_param=bfloat16"},
      {"path", " --model.path=published --checkpoint.initial_load_path=published --data.tokenizer=published"}};
  for (const auto& [name, flags_of_run] : settings) {
    const Output trained = work.tutti("train run.toml --run.name=" + name + flags_of_run);
    ASSERT_EQ(trained.status, 0) << trained.err;
    const Output made = work.tutti(fmt::format("package runs/{} small-{}", name, name));
    ASSERT_EQ(made.status, 0) << made.err;
    EXPECT_NE(made.out.find("combinations of sizes proved"), std::string::npos) << made.out;
    for (const char* flags : {"", " --prompt 'the old river runs' --max-tokens 20 --temperature 0",
                              " --prompt 'a stone' --max-tokens 90 --temperature 1.1 --seed 7"}) {
      const Output live = work.tutti(fmt::format("generate runs/{}{}", name, flags));
      const Output packaged = work.tutti(fmt::format("generate small-{}{}", name, flags));
      EXPECT_EQ(packaged.status, 0) << packaged.err;
      EXPECT_EQ(packaged.out, live.out) << name << flags;
    }
  }
  std::filesystem::remove(work.folder() / "small-path/tokenizer.json");
  const Output lost = work.tutti("generate small-path");
  EXPECT_EQ(lost.status, 1);
  EXPECT_NE(lost.err.find("small-path/tokenizer.json is missing, the tokenizer of the packaged run"), std::string::npos)
      << lost.err;
  // The package holds the weights of the newest checkpoint: it stays as it is when the run is gone.
  const std::string before = work.tutti("generate small-f32 --max-tokens 9 --temperature 0").out;
  std::filesystem::remove_all(work.folder() / "runs/f32");
  EXPECT_EQ(work.tutti("generate small-f32 --max-tokens 9 --temperature 0").out, before);
  const auto refusal = [&](const std::string& arguments) {
    const Output output = work.tutti(arguments);
    EXPECT_EQ(output.status, 2) << arguments << output.out;
    return output.err;
  };
  EXPECT_NE(
      refusal("package runs/bf16 other --dtype bf16").find("runs/bf16 is a run, which computes in the dtype of its"),
      std::string::npos);
  EXPECT_NE(refusal("package small-f32 other").find("small-f32 is a packaged model"), std::string::npos);
  EXPECT_NE(refusal("checkpoint ls small-f32").find("small-f32 is a packaged model"), std::string::npos);
  EXPECT_NE(refusal("generate small-f32 --compile").find("small-f32 is a packaged model"), std::string::npos);
  std::filesystem::create_directory(work.folder() / "runs/empty");
  work.write("runs/empty/config.resolved.toml", work.read("runs/bf16/config.resolved.toml"));
  EXPECT_NE(
      refusal("package runs/empty other").find("package: runs/empty holds no complete checkpoint; train it first"),
      std::string::npos);
  for (const auto& entry : std::filesystem::directory_iterator(work.folder()))
    EXPECT_EQ(entry.path().filename().string().find("other"), std::string::npos) << entry.path();
}

// Pages are of 16 tokens, and tables of 8 pages: 150 tokens need a second table, which they do not fill.
TEST(PackagedModel, TextsFillAContextThatIsNoNumberOfWholeTables) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  // What a killed process left is no obstacle, and stays for its owner to look at.
  std::filesystem::create_directory(work.folder() / "small.unfinished.1");
  work.write("small.unfinished.1/decode.tutti.unproved", "half a package");
  const Output made = work.tutti("package published small --context 150");
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(work.read("small.unfinished.1/decode.tutti.unproved"), "half a package");
  for (const int tokens : {100, 140, 180}) {
    const std::string rest =
        fmt::format(" --prompt 'the old river runs' --max-tokens {} --temperature 0.9 --seed 5 --context 150", tokens);
    const Output live = work.tutti("generate published" + rest), packaged = work.tutti("generate small" + rest);
    EXPECT_EQ(packaged.status, live.status) << packaged.err << live.err;
    EXPECT_EQ(packaged.out, live.out) << rest;
  }
}

// A server of the packaged model in the place of the model: clients at once get the texts that they get alone.
TEST(PackagedModel, IsServedToManyClientsAtOnce) {
  const auto packages = [](const Workplace& work) {
    const Output made = work.tutti("package published small --context 200 --texts 3");
    ASSERT_EQ(made.status, 0) << made.err;
    std::filesystem::remove_all(work.folder() / "published");
    std::filesystem::rename(work.folder() / "small", work.folder() / "published");
  };
  const Served live("--context 200"), packaged("--context 200", packages);
  const auto text_of = [](const Served& server, int seed) {
    httplib::Client client("127.0.0.1", server.port());
    client.set_read_timeout(60);
    const std::string body = fmt::format(
        R"({{"prompt": "the old river {}", "max_tokens": 30, "ignore_eos": true, "temperature": 0.9, "seed": {}}})",
        std::string(static_cast<size_t>(11 * seed), 's'), seed);
    const auto answer = client.Post("/v1/completions", body, "application/json");
    if (!answer || answer->status != 200) return answer ? answer->body : std::string("no answer");
    const JsonDocument json(answer->body, {.name = "answer"});
    return (*json.top().at("choices").begin()).value.at("text").string();
  };
  std::vector<std::string> together(8);
  std::vector<std::thread> clients;
  for (int seed = 0; seed < 8; ++seed)
    clients.emplace_back([&, seed] { together[static_cast<size_t>(seed)] = text_of(packaged, seed); });
  for (std::thread& client : clients) client.join();
  for (int seed = 0; seed < 8; ++seed) {
    EXPECT_EQ(together[static_cast<size_t>(seed)], text_of(live, seed)) << seed;
    EXPECT_EQ(together[static_cast<size_t>(seed)], text_of(packaged, seed)) << seed;
  }
}

TEST(PackagedModel, AFolderWhoseDescriptionIsOfAnotherVocabularyIsRefused) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  const Output made = work.tutti("package published small --context 64");
  ASSERT_EQ(made.status, 0) << made.err;
  std::string config = work.read("small/config.json");
  const std::string key = "\"vocab_size\":";
  const size_t at = config.find(key);
  ASSERT_NE(at, std::string::npos) << config;
  const int64_t vocab = std::stoll(config.substr(at + key.size()));
  const size_t number = config.find(std::to_string(vocab), at);
  config.replace(number, std::to_string(vocab).size(), std::to_string(vocab + 3));
  work.write("small/config.json", config);
  const Output refused = work.tutti("generate small --prompt a");
  EXPECT_EQ(refused.status, 2) << refused.out;
  EXPECT_NE(refused.err.find(fmt::format("the package in small gives logits of {} tokens, and config.json beside it "
                                         "describes {}; they are of two models",
                                         vocab, vocab + 3)),
            std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace tutti::test
