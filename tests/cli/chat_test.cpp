// Conversations and the server by command line, with a published model of random weights.
#include <gtest/gtest.h>
#include <httplib.h>

#include <csignal>
#include <sstream>
#include <thread>

#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% "
    "endif %}";

struct Chats : testing::Test {
  Chats() {
    write_tiny_run(work);
    write_published_decoder(work);
  }
  // Starts the server and waits for the line that names its address; its port.
  int serve(const std::string& flags, int* pid, const std::string& model = "published") const {
    std::filesystem::remove(work.folder() / "out.txt");  // of an earlier command
    *pid = work.start("serve " + model + " --port 0 " + flags);
    for (int tries = 0; tries < 1200; ++tries) {
      const std::string line = std::filesystem::exists(work.folder() / "out.txt") ? work.read("out.txt") : "";
      if (const size_t colon = line.rfind(':'); line.ends_with("\n")) return std::stoi(line.substr(colon + 1));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "the server has not begun: " << work.read("err.txt");
    return 0;
  }
  const Workplace work;
};

TEST_F(Chats, AnswerLineByLine) {
  const Output none = work.tutti("chat published < /dev/null");
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("the model brings no chat template"), std::string::npos) << none.err;
  work.write("published/chat_template.jinja", kTemplate);
  work.write("lines.txt",
             "the old river\n\n/reset\nthe old river\n/what\n/system be kind\nthe old river\n/exit\nnever\n");
  const Output talk = work.tutti("chat published --max-tokens 5 --temperature 0 < lines.txt");
  EXPECT_EQ(talk.status, 0) << talk.err;
  EXPECT_NE(talk.err.find("the answer ends at 5 tokens"), std::string::npos) << talk.err;
  EXPECT_NE(talk.err.find("/reset forgets the conversation"), std::string::npos) << talk.err;
  // A conversation that begins anew gives the same answer, and the one behind a system message may be another.
  work.write("once.txt", "the old river\n");
  const Output once = work.tutti("chat published --max-tokens 5 --temperature 0 < once.txt");
  EXPECT_TRUE(talk.out.starts_with(once.out + once.out)) << talk.out;
  work.write("long.txt", std::string(3000, 'a') + "\nthe old river\n");
  const Output longer = work.tutti("chat published --context 60 --max-tokens 5 --temperature 0 < long.txt");
  EXPECT_EQ(longer.status, 0) << longer.err;
  EXPECT_NE(longer.err.find("the context holds 60"), std::string::npos) << longer.err;
  EXPECT_EQ(longer.out, once.out);
}

// Its requests wait for each other, and get what the model answers.
TEST_F(Chats, APackagedModelChatsAndServesOneRequestAtATime) {
  work.write("published/chat_template.jinja", kTemplate);
  const Output made = work.tutti("package published small --context 128");
  ASSERT_EQ(made.status, 0) << made.err;
  work.write("once.txt", "the old river\n");
  const std::string chat = " --max-tokens 5 --temperature 0 < once.txt";
  const Output live = work.tutti("chat published" + chat), packaged = work.tutti("chat small" + chat);
  EXPECT_EQ(packaged.status, 0) << packaged.err;
  EXPECT_EQ(packaged.out, live.out);
  const auto answers_of = [&](const std::string& model) {
    int pid = 0;
    const int port = serve("--temperature 0 --max-requests 1 --context 128", &pid, model);
    std::vector<std::string> answers(4);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < answers.size(); ++i) {
      clients.emplace_back([&, i] {
        httplib::Client client("127.0.0.1", port);
        client.set_read_timeout(60);
        const std::string prompt = i % 2 == 0 ? "the old river" : "the sea";
        const auto answer =
            client.Post("/v1/completions", R"({"prompt": ")" + prompt + R"(", "max_tokens": 6})", "application/json");
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->status, 200) << answer->body;
        const JsonDocument told(answer->body, {.name = "answer"});
        for (const auto& [_, choice] : told.top().at("choices")) answers[i] += choice.at("text").text();
      });
    }
    for (std::thread& client : clients) client.join();
    kill(pid, SIGTERM);
    EXPECT_EQ(Workplace::wait(pid), 0) << work.read("err.txt");
    return answers;
  };
  EXPECT_EQ(answers_of("small"), answers_of("published"));
}

TEST_F(Chats, ServeAnswersAndDrains) {
  work.write("published/chat_template.jinja", kTemplate);
  int pid = 0;
  const int port = serve("--temperature 0", &pid);
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(60);
  const auto completion = client.Post(
      "/v1/completions", R"({"prompt": "the old river", "max_tokens": 5, "echo": true})", "application/json");
  ASSERT_TRUE(completion);
  EXPECT_EQ(completion->status, 200);
  const std::string text = work.tutti("generate published 'the old river' --temperature 0 --max-tokens 5").out;
  EXPECT_NE(completion->body.find("the old river"), std::string::npos) << completion->body;
  const auto chat = client.Post("/v1/chat/completions",
                                R"({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "stream": true})",
                                "application/json");
  ASSERT_TRUE(chat);
  EXPECT_NE(chat->body.find("data: [DONE]"), std::string::npos) << chat->body;
  const auto wrong = client.Post("/v1/completions", R"({"prompt": 5})", "application/json");
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->status, 400);
  const auto metrics = client.Get("/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_NE(metrics->body.find("tutti_generated_tokens_total 9"), std::string::npos) << metrics->body;
  kill(pid, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid), 0) << work.read("err.txt");
}

// Requests that run together on ranks that divide the model are answered as by one rank.
TEST_F(Chats, ServeOnSeveralRanks) {
  const auto answers = [&](const char* flags) {
    int pid = 0;
    const int port = serve(flags, &pid);
    std::vector<std::string> texts(4);
    std::vector<std::thread> clients;
    for (size_t i = 0; i < texts.size(); ++i) {
      clients.emplace_back([&, i] {
        httplib::Client client("127.0.0.1", port);
        client.set_read_timeout(60);
        const auto answer = client.Post(
            "/v1/completions",
            fmt::format(R"({{"prompt": "the old river", "max_tokens": 30, "seed": {}, "logprobs": 2}})", i + 1),
            "application/json");
        if (!answer) return;
        const size_t choices = answer->body.find("\"choices\"");  // behind the number and the time
        texts[i] = answer->body.substr(choices == std::string::npos ? 0 : choices);
      });
    }
    // A client that leaves, whose request is cancelled on all ranks.
    httplib::Request leaves;
    leaves.method = "POST", leaves.path = "/v1/completions";
    leaves.headers = {{"Content-Type", "application/json"}};
    leaves.body = R"({"prompt": "a", "max_tokens": 500, "stream": true, "ignore_eos": true})";
    leaves.content_receiver = [](const char*, size_t, uint64_t, uint64_t) { return false; };
    httplib::Client("127.0.0.1", port).send(leaves);
    for (std::thread& client : clients) client.join();
    kill(pid, SIGTERM);
    EXPECT_EQ(Workplace::wait(pid), 0) << work.read("err.txt");
    return texts;
  };
  const std::vector<std::string> alone = answers("--dtype bf16");
  for (const std::string& text : alone) EXPECT_NE(text.find("token_logprobs"), std::string::npos) << text;
  EXPECT_EQ(answers("--dtype bf16 -n 2"), alone);
  const Output refused = work.tutti("serve published --port 0 -n 8");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("expected a power of two up to 4"), std::string::npos) << refused.err;
  const std::string one = "generate published 'the old river' --seed 2 --max-tokens 30";
  EXPECT_EQ(work.tutti(one + " -n 4").out, work.tutti(one).out);
}

// The rank is named by the error of the request that was running, and by the end of the server.
TEST_F(Chats, ServeEndsWithARankThatDies) {
  int pid = 0;
  const int port = serve("-n 2", &pid);
  std::string body;
  int status = 0;
  std::thread client([&] {
    httplib::Client asks("127.0.0.1", port);
    asks.set_read_timeout(60);
    if (const auto answer = asks.Post("/v1/completions", R"({"prompt": "a", "max_tokens": 3000, "ignore_eos": true})",
                                      "application/json"))
      body = answer->body, status = answer->status;
  });
  httplib::Client watch("127.0.0.1", port);
  for (int tries = 0; tries < 400; ++tries) {
    const auto metrics = watch.Get("/metrics");
    if (metrics && metrics->body.find("tutti_requests_running 1") != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  const std::vector<int> ranks = ranks_of(pid);
  ASSERT_EQ(ranks.size(), 2u);
  kill(ranks[1], SIGKILL);
  client.join();
  EXPECT_EQ(status, 500) << body;
  EXPECT_NE(body.find("rank 1"), std::string::npos) << body;
  EXPECT_EQ(Workplace::wait(pid), 128 + SIGKILL);
  EXPECT_NE(work.read("err.txt").find("rank 1"), std::string::npos) << work.read("err.txt");
}

std::vector<float> embedding_of(const JsonValue& object) {
  std::vector<float> numbers;
  for (const auto& [_, number] : object.at("embedding")) numbers.push_back(static_cast<float>(number.number()));
  return numbers;
}

TEST_F(Chats, ServeEmbedsAsEmbedDoes) {
  write_published_encoder(work);
  int pid = 0;
  const int port = serve("", &pid, "encoder/");
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(60);
  const auto post = [&](const char* path, const std::string& body) {
    const auto answer = client.Post(path, body, "application/json");
    EXPECT_TRUE(answer);
    return answer ? *answer : httplib::Response();
  };
  // The second text is longer than the model allows.
  const std::string text = "the old river and " + std::string(200, 'x') + " the sea";
  const httplib::Response two = post("/v1/embeddings", R"({"model": "encoder", "input": ["a text", ")" + text + "\"]}");
  ASSERT_EQ(two.status, 200) << two.body;
  const JsonDocument told(two.body, {.name = "answer"});
  std::istringstream lines(work.tutti("embed encoder 'a text' '" + text + "'").out);
  int64_t rows = 0;
  for (const auto& [_, row] : told.top().at("data")) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_EQ(embedding_of(row), embedding_of(JsonDocument(line, {.name = "line"}).top()));
    EXPECT_EQ(row.at("index").whole(), rows++);
  }
  EXPECT_EQ(rows, 2);
  // Ids with their frame are the text.
  const std::string ids = post("/tokenize", R"({"prompt": "a text"})").body;
  const size_t begin = ids.rfind('['), end = ids.find(']', begin) + 1;
  const auto packed = [](const std::string& input) {
    return R"({"encoding_format": "base64", "input": )" + input + "}";
  };
  const httplib::Response of_ids = post("/v1/embeddings", packed(ids.substr(begin, end - begin)));
  EXPECT_EQ(of_ids.status, 200) << of_ids.body;
  EXPECT_EQ(of_ids.body, post("/v1/embeddings", packed("\"a text\"")).body);
  for (const auto& [path, body] :
       {std::pair("/v1/completions", R"({"prompt": "a"})"),
        std::pair("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"),
        std::pair("/v1/embeddings", R"({"input": [[]]})")})
    EXPECT_EQ(post(path, body).status, 400) << path;
  const auto metrics = client.Get("/metrics");
  ASSERT_TRUE(metrics);
  EXPECT_NE(metrics->body.find("tutti_embeddings_total 4\n"), std::string::npos) << metrics->body;
  kill(pid, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid), 0) << work.read("err.txt");
  for (const char* flag : {"--context 64", "--dtype bf16", "--kv-cache-dtype int8", "--compile", "--quantized"}) {
    const Output refused = work.tutti(std::string("serve encoder --port 0 ") + flag);
    EXPECT_EQ(refused.status, 2) << flag;
    EXPECT_NE(refused.err.find("leave out --context, --dtype, --kv-cache-dtype, --compile and --quantized"),
              std::string::npos)
        << refused.err;
  }
}

TEST_F(Chats, ServeEmbedsWithCodesAsEmbedDoes) {
  write_published_encoder(work);
  int pid = 0;
  const int port = serve("--quantize int8", &pid, "encoder/");
  httplib::Client client("127.0.0.1", port);
  client.set_read_timeout(60);
  const auto answer = client.Post("/v1/embeddings", R"({"input": "a text"})", "application/json");
  ASSERT_TRUE(answer);
  ASSERT_EQ(answer->status, 200) << answer->body;
  const JsonDocument told(answer->body, {.name = "answer"});
  std::string line = work.tutti("embed encoder 'a text' --quantize int8").out;
  line.resize(line.find('\n'));
  const JsonDocument embedded(line, {.name = "line"});
  for (const auto& [_, row] : told.top().at("data")) EXPECT_EQ(embedding_of(row), embedding_of(embedded.top()));
  const std::string numbers = work.tutti("embed encoder 'a text'").out;
  EXPECT_NE(numbers.substr(0, numbers.find('\n')), line);
  kill(pid, SIGTERM);
  EXPECT_EQ(Workplace::wait(pid), 0) << work.read("err.txt");
}

TEST_F(Chats, ServeRefusesWhatWouldBeOpenToAll) {
  const Output open = work.tutti("serve published --host 0.0.0.0 --port 0");
  EXPECT_EQ(open.status, 2);
  EXPECT_NE(open.err.find("key"), std::string::npos) << open.err;
  EXPECT_EQ(work.tutti("serve nowhere").status, 2);
}

}  // namespace
}  // namespace tutti::test
