// Conversations turn by turn against whole prompts, with a template of two lines.
#include "tutti/generate/chat_session.h"

#include <gtest/gtest.h>

#include "tests/generate/support/tiny_decoders.h"
#include "tests/support/message_of.h"

namespace tutti::generate {
namespace {

constexpr const char* kTemplate =
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[a]{% endif %}";

struct Talk {
  ByteTokenizer tokenizer;
  std::unique_ptr<models::Decoder> model = make_tiny("dense");
  Engine engine{*model, tokenizer, {.context = 200}};
  PublishedChat chat{.templates = {{"default", ChatTemplate::parse(kTemplate, "test")}}, .special_tokens = {}};

  ChatSession session(const std::string& system = "") {
    return ChatSession(engine, tokenizer, chat,
                       {.request = {.sampling = {.temperature = 0.9, .seed = 5}, .max_tokens = 6}, .system = system});
  }
  // The text that continues `prompt`.
  std::string continued(const std::string& prompt, uint64_t seed) {
    std::vector<int32_t> tokens;
    engine.submit(
        {.prompt = tokenizer.encode(prompt), .sampling = {.temperature = 0.9, .seed = seed}, .max_tokens = 6});
    while (engine.has_work()) {
      for (const Event& event : engine.step()) {
        if (event.token) tokens.push_back(event.token->id);
      }
    }
    return tokenizer.decode(tokens, true);
  }
};

ChatAnswer say(ChatSession& session, const std::string& text) {
  return session.say(text, [](std::string_view) {}, [] { return false; });
}

TEST(ChatSession, EachTurnContinuesTheWholeConversation) {
  Talk talk;
  ChatSession session = talk.session("be kind");
  const ChatAnswer first = say(session, "hi");
  EXPECT_EQ(first.tokens, 6);
  EXPECT_EQ(first.finish, Finish::length);
  const std::string before = "[system]be kind\n[user]hi\n[a]";
  const std::string whole = talk.continued(before, 5);
  if (first.text == whole) {  // as it is where the bytes are UTF-8
    const ChatAnswer second = say(session, "more");
    EXPECT_EQ(second.prompt_tokens, std::ssize("[system]be kind\n[user]hi\n[assistant]" + whole + "\n[user]more\n[a]"));
  }
  EXPECT_GE(session.turns(), 1);
  session.reset();
  EXPECT_EQ(session.turns(), 0);
  EXPECT_EQ(say(session, "hi").text, first.text);
  session.reset("be brief");
  EXPECT_NE(say(session, "hi").prompt_tokens, first.prompt_tokens);
}

TEST(ChatSession, AnAnswerThatIsStoppedStays) {
  Talk talk;
  ChatSession session = talk.session();
  int asked = 0;
  const ChatAnswer answer = session.say("hi", [](std::string_view) {}, [&] { return ++asked > 2; });
  EXPECT_EQ(answer.finish, Finish::cancelled);
  EXPECT_LT(answer.tokens, 6);
  EXPECT_EQ(session.turns(), 1);
  EXPECT_FALSE(talk.engine.has_work());
}

TEST(ChatSession, WhatDoesNotFitChangesNothing) {
  Talk talk;
  ChatSession session = talk.session();
  say(session, "hi");
  const std::string message = message_of([&] { say(session, std::string(300, 'x')); });
  EXPECT_NE(message.find("the context holds 200"), std::string::npos) << message;
  EXPECT_EQ(session.turns(), 1);
  EXPECT_EQ(say(session, "again").finish, Finish::length);
  PublishedChat none;
  EXPECT_NE(message_of([&] { ChatSession(talk.engine, talk.tokenizer, none, {}); }).find("brings no chat template"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::generate
