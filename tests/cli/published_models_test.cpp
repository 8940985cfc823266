// Published models by command line: generate, eval, embed, and training from their description on several layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"
#include "tests/support/quantized_model.h"

namespace tutti::test {
namespace {

struct PublishedModels : ::testing::Test {
  PublishedModels() {
    write_tiny_run(work);
    write_published_decoder(work);
  }
  const Workplace work;
};

TEST_F(PublishedModels, GenerateContinuesAPrompt) {
  const Output one = work.tutti("generate published --prompt 'the old river' --temperature 0 --max-tokens 5"),
               file = work.tutti(
                   "generate published/model.safetensors --prompt 'the old river' --temperature 0 --max-tokens 5");
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_TRUE(one.out.starts_with("the old river")) << one.out;
  EXPECT_GT(one.out.size(), std::string("the old river\n").size());
  EXPECT_EQ(file.out, one.out) << file.err;
  const Output ranks = work.tutti("generate published --prompt 'the old river' --temperature 0 --max-tokens 5 -n 2");
  EXPECT_EQ(ranks.out, one.out) << ranks.err;
  const Output none = work.tutti("generate published"), many = work.tutti("generate published --prompt a -n 8");
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("published is a published model; give it a text to continue by --prompt"), std::string::npos)
      << none.err;
  EXPECT_EQ(many.status, 2);
  EXPECT_NE(many.err.find("expected a power of two up to 4, for degrees are bounded by 4 key/value heads (4)"),
            std::string::npos)
      << many.err;
}

TEST_F(PublishedModels, EvalMeasuresATextInAnyWindow) {
  work.write("text.txt", "the old river runs to the sea, and the sea is old");
  const Output whole = work.tutti("eval published --data text.txt --json"),
               again = work.tutti("eval published --data text.txt --json --window 512"),
               cut = work.tutti("eval published --data text.txt --window 3");
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_NE(whole.out.find("\"bits_per_byte\""), std::string::npos) << whole.out;
  EXPECT_EQ(again.out, whole.out) << again.err;
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_NE(cut.out.find("per token"), std::string::npos) << cut.out;
  work.write("empty.txt", "a");
  for (const auto& [flags, message] : {std::pair{"published --data nothing.txt", "nothing.txt"},
                                       {"nowhere --data text.txt", "nowhere"},
                                       {"data --data text.txt", "data"}}) {
    const Output refused = work.tutti(std::string("eval ") + flags);
    EXPECT_NE(refused.status, 0) << flags;
    EXPECT_NE(refused.err.find(message), std::string::npos) << refused.err;
  }
}

TEST_F(PublishedModels, WeightsThatStayQuantizedWriteAndAreMeasured) {
  work.write("text.txt", "the old river runs to the sea, and the sea is old");
  tutti::testing::write_quantized(tutti::testing::quantizable_decoder(true, 2), tutti::testing::all_block_formats(),
                                  work.folder() / "blocks.gguf");
  const std::string flags = "generate blocks.gguf --prompt 'the old river' --temperature 0 --max-tokens 5 --quantized";
  const Output one = work.tutti(flags), compiled = work.tutti(flags + " --compile");
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_TRUE(one.out.starts_with("the old river")) << one.out;
  EXPECT_EQ(compiled.out, one.out) << compiled.err;
  for (const char* ranks : {" -n 2", " -n 2 --compile --divide-products"}) {
    const Output divided = work.tutti(flags + ranks);
    EXPECT_EQ(divided.out, one.out) << divided.err;
  }
  const auto bits_of = [&](const char* flag) {
    const Output said = work.tutti(std::string("eval blocks.gguf --data text.txt --json ") + flag);
    EXPECT_EQ(said.status, 0) << said.err;
    const std::string key = "\"bits_per_byte\":";
    return std::stod(said.out.substr(said.out.find(key) + key.size()));
  };
  const double decoded = bits_of(""), kept = bits_of("--quantized");
  EXPECT_NEAR(kept / decoded, 1, 0.05);
  EXPECT_NE(kept, decoded) << "activations are rounded to 8 bits";
  for (const auto& [verb, message] :
       {std::pair{"generate blocks.gguf --prompt a --quantized -n 4",
                  "4 ranks cannot divide 2 key/value heads; expected a divisor of the heads of every layer"},
        {"generate published --prompt a --quantized", "has no weights that can stay quantized"},
        {"eval published --data text.txt --quantized", "or leave out --quantized"}}) {
    const Output refused = work.tutti(verb);
    EXPECT_EQ(refused.status, 2) << verb;
    EXPECT_NE(refused.err.find(message), std::string::npos) << refused.err;
  }
}

TEST_F(PublishedModels, KeysAndValuesAreCodesWhereAsked) {
  work.write("text.txt", "the old river runs to the sea, and the sea is old");
  const auto score_of = [&](const std::string& flags) {
    const Output said = work.tutti("eval published --data text.txt --json " + flags);
    EXPECT_EQ(said.status, 0) << said.err;
    const std::string key = "\"bits_per_byte\":";
    return std::stod(said.out.substr(said.out.find(key) + key.size()));
  };
  const double numbers = score_of("");
  EXPECT_EQ(score_of("--kv-cache-dtype auto"), numbers);
  for (const char* dtype : {"int8", "fp8_e4m3"}) {
    const std::string flag = std::string(" --kv-cache-dtype ") + dtype;
    const double codes = score_of(flag);
    EXPECT_NEAR(codes / numbers, 1, 0.02) << dtype;
    EXPECT_NE(codes, numbers) << dtype;
    EXPECT_EQ(score_of(flag + " --window 600"), codes) << dtype;
    const std::string generate = "generate published --prompt 'the old river' --temperature 0 --max-tokens 30" + flag;
    const Output one = work.tutti(generate);
    EXPECT_EQ(one.status, 0) << one.err;
    for (const char* more : {" --compile", " -n 2"}) {
      const Output other = work.tutti(generate + more);
      EXPECT_EQ(other.out, one.out) << dtype << more << other.err;
    }
    const Output bench = work.tutti("bench generate published -p 8 -n 3 -d 20 -r 1 --json" + flag);
    EXPECT_EQ(bench.status, 0) << bench.err;
    EXPECT_NE(bench.out.find("\"cache_bytes_per_token\":"), std::string::npos) << bench.out;
  }
  const Output unknown = work.tutti("generate published --prompt a --kv-cache-dtype int4");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("int4 not in {auto,int8,fp8_e4m3}"), std::string::npos) << unknown.err;
}

// The description is that of the file: the layouts of its run have the bits of one rank.
TEST_F(PublishedModels, TrainTheSameOnEveryLayout) {
  const std::string flags =
      "train run.toml --model.path=published --checkpoint.initial_load_path=published --training.steps=2 "
      "--data.tokenizer=published --quiet ";
  std::string expected;
  for (const auto& [name, layout] :
       {std::pair{"one", ""},
        {"compiled", "--training.compile=true"},
        {"two", "-n 2"},
        {"three", "-n 3"},
        {"shards", "-n 2 --parallelism.data_parallel_shard_degree=2"},
        {"tensor", "-n 2 --parallelism.tensor_parallel_degree=2 --parallelism.enable_sequence_parallel=false"}}) {
    const Output run = work.tutti(flags + "--run.name=" + name + " " + layout);
    EXPECT_EQ(run.status, 0) << name << ": " << run.err;
    const std::string outcome = outcome_of(work, std::string("runs/") + name);
    if (expected.empty()) expected = outcome;
    EXPECT_EQ(outcome, expected) << name;
  }
  const Output named = work.tutti(
      "train run.toml --model.name=llama --model.flavor=tiny-tp4 --checkpoint.initial_load_path=published "
      "--training.steps=2 --data.tokenizer=published --quiet --run.name=named");
  EXPECT_EQ(named.status, 0) << named.err;
  EXPECT_EQ(work.metric("named", "loss_hex"), work.metric("one", "loss_hex"));
  // The run keeps the description: another in its place changes nothing, and the text takes the run's folder alone.
  const std::string text = work.tutti("generate runs/one --prompt 'the old river' --max-tokens 4").out;
  std::string changed = work.read("published/config.json");
  changed.replace(changed.find("1000000"), 7, "50");
  work.write("published/config.json", changed);
  const Output longer = work.tutti(flags + "--run.name=one --training.steps=3");
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_EQ(work.tutti("generate runs/named --prompt 'the old river' --max-tokens 4").out, text);
  std::filesystem::rename(work.folder() / "published", work.folder() / "moved");
  EXPECT_EQ(work.tutti("generate runs/two --prompt 'the old river' --max-tokens 4").out, text);
  const Output gone = work.tutti(
      "train run.toml --model.path=published --training.steps=3 --data.tokenizer=tokenizer "
      "--quiet --run.name=two -n 2");
  EXPECT_EQ(gone.status, 0) << gone.err;
  std::filesystem::rename(work.folder() / "moved", work.folder() / "published");
  const Output other = work.tutti(
      "train run.toml --model.name=llama --model.flavor=tiny --checkpoint.initial_load_path=published "
      "--run.name=other");
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("describes another model than llama tiny, which is unchanged"), std::string::npos)
      << other.err;
  const Output nowhere = work.tutti("train run.toml --model.path=nowhere --run.name=nowhere");
  EXPECT_NE(nowhere.status, 0);
  EXPECT_NE(nowhere.err.find("nowhere"), std::string::npos) << nowhere.err;
}

TEST_F(PublishedModels, EmbedGivesEachTextAVectorOfUnitLength) {
  write_published_encoder(work);
  const Output two = work.tutti("embed encoder 'a text' 'another text'"),
               again = work.tutti("embed encoder 'another text' 'a text'"),
               cosines = work.tutti("embed encoder 'a text' 'a text' --similarity");
  EXPECT_EQ(two.status, 0) << two.err;
  const size_t line = two.out.find('\n');
  EXPECT_EQ(again.out, two.out.substr(line + 1) + two.out.substr(0, line + 1));
  EXPECT_EQ(cosines.out, " 1.0000 1.0000\n 1.0000 1.0000\n");
}

TEST_F(PublishedModels, EmbedSaysWhatItNeeds) {
  const Output refused = work.tutti("embed published 'a text'");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("model_type: \"llama\""), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace tutti::test
