// `tutti chat`: a conversation with a published model in a terminal, or line by line through pipes.
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/sampling_flags.h"
#include "tutti/core/error.h"
#include "tutti/generate/chat_session.h"
#include "tutti/job/printable.h"
#include "tutti/train/text_model.h"

namespace tutti::cli {
namespace {

struct ChatFlags {
  std::string model;
  std::string system;
  std::optional<int64_t> max_tokens;
  train::SamplingSettings sampling;
  train::TextModelOptions options;
};

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends an answer, not the program.
void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &action, nullptr);  // without SA_RESTART: a read of a line returns
}

// Lines of the standard input.
class Lines {
 public:
  // A line without its end; nothing at the end of the input. An interrupt gives an empty line.
  std::optional<std::string> next() {
    for (;;) {
      if (const size_t end = rest_.find('\n'); end != std::string::npos) {
        std::string line = rest_.substr(0, end);
        rest_.erase(0, end + 1);
        return line;
      }
      char bytes[4096];
      const ssize_t count = read(STDIN_FILENO, bytes, sizeof bytes);
      if (count > 0) rest_.append(bytes, static_cast<size_t>(count));
      else if (count < 0 && errno == EINTR) return std::string();
      else if (rest_.empty()) return std::nullopt;
      else return std::exchange(rest_, {});
    }
  }

 private:
  std::string rest_;
};

void say(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time;
}

constexpr const char* kHelp =
    "/reset forgets the conversation, /system TEXT begins another one under this instruction, /exit or Ctrl-D ends; "
    "Ctrl-C ends an answer";

int run_chat(const ChatFlags& flags) {
  train::TextModel text = train::open_text_model(flags.model, flags.options);
  generate::EngineOptions options = text.engine_options();
  options.max_requests = 1;
  generate::Engine engine(*text.model, *text.tokenizer, options);
  generate::ChatOptions chat{.request = {.sampling = flags.sampling.over(text.sampling),
                                         .max_tokens = flags.max_tokens.value_or(text.context),
                                         .ends = text.ends,
                                         .suppressed = text.suppressed},
                             .stops = text.stops,
                             .system = flags.system,
                             .now = local_time()};
  generate::ChatSession session(engine, *text.tokenizer, text.chat, std::move(chat));
  const bool is_terminal = isatty(STDIN_FILENO) != 0;
  if (is_terminal) std::fprintf(stderr, "%s. %s.\n", comm::printable_lines(text.name).c_str(), kHelp);
  catch_interrupts();
  Lines lines;
  for (;;) {
    if (is_terminal) say("> ");
    const std::optional<std::string> line = lines.next();
    if (std::exchange(interrupted, 0) != 0) say("\n");
    if (!line || *line == "/exit") break;
    if (line->empty()) continue;
    if (*line == "/reset") {
      session.reset();
    } else if (line->starts_with("/system ")) {
      session.reset(line->substr(8));
    } else if (line->starts_with("/")) {
      std::fprintf(stderr, "%s\n", kHelp);
    } else {
      try {
        const generate::ChatAnswer answer =
            session.say(*line, [](std::string_view part) { say(std::string(part)); }, [] { return interrupted != 0; });
        say("\n");
        if (answer.finish == generate::Finish::length)
          std::fprintf(stderr, "(the answer ends at %lld tokens; --max-tokens and --context allow more)\n",
                       static_cast<long long>(answer.tokens));
        interrupted = 0;
      } catch (const UsageError& error) {
        std::fprintf(stderr, "%s; /reset begins anew\n", comm::printable_lines(error.what()).c_str());
      }
    }
  }
  if (is_terminal) say("\n");
  return 0;
}

}  // namespace

void add_chat(CLI::App& app, Action& action) {
  auto flags = std::make_shared<ChatFlags>();
  CLI::App* verb = app.add_subcommand("chat", "Talk with a published model that brings a chat template");
  verb->add_option("model", flags->model, "A folder with config.json, or a GGUF file")->required();
  verb->add_option("--system", flags->system, "The instruction under which it answers");
  verb->add_option("--max-tokens", flags->max_tokens, "Tokens of an answer at most; else as the context allows")
      ->check(CLI::PositiveNumber);
  add_sampling_flags(*verb, flags->sampling);
  add_model_flags(*verb, flags->options);
  verb->footer(kHelp);
  verb->callback([flags, &action] { action = [flags] { return run_chat(*flags); }; });
}

}  // namespace tutti::cli
