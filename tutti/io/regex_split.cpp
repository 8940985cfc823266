#include "tutti/io/regex_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "tutti/core/error.h"
#include "tutti/io/utf8.h"

namespace tutti::io {
namespace {

std::string message_of(int error) {
  char buffer[256];
  const int length = pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof(buffer));
  return length < 0 ? fmt::format("PCRE2 error {}", error) : std::string(buffer, static_cast<size_t>(length));
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatchData>;

MatchData make_match_data() {
  MatchData data(pcre2_match_data_create(1, nullptr));
  TUTTI_CHECK_ENV(data != nullptr, "out of memory while splitting text");
  return data;
}

}  // namespace

struct RegexSplitter::Code {
  pcre2_code* compiled = nullptr;
  ~Code() { pcre2_code_free(compiled); }

  // PCRE2's status of the first match at or after `from`. `text` must be UTF-8: a check for each match would make the
  // whole quadratic.
  int match(std::string_view text, size_t from, pcre2_match_data* match) const {
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    const int status = pcre2_match(compiled, subject, text.size(), from, options, match, nullptr);
    if (status != PCRE2_ERROR_JIT_STACKLIMIT) return status;
    // The interpreter keeps its state on the heap.
    return pcre2_match(compiled, subject, text.size(), from, options | PCRE2_NO_JIT, match, nullptr);
  }
};

RegexSplitter::RegexSplitter(std::string pattern) : pattern_(std::move(pattern)), code_(std::make_unique<Code>()) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->compiled = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern_.data()), pattern_.size(), PCRE2_UTF | PCRE2_UCP,
                                  &error, &offset, nullptr);
  TUTTI_CHECK(code_->compiled != nullptr, "split pattern '{}' does not compile: {} at byte {}", pattern_,
              message_of(error), offset);
  // Where the system forbids writable code pages the interpreter does the same, slower.
  pcre2_jit_compile(code_->compiled, PCRE2_JIT_COMPLETE);
}

RegexSplitter::~RegexSplitter() = default;
RegexSplitter::RegexSplitter(RegexSplitter&&) noexcept = default;
RegexSplitter& RegexSplitter::operator=(RegexSplitter&&) noexcept = default;

void RegexSplitter::split_valid(std::string_view text, size_t base, std::vector<size_t>& ends) const {
  const MatchData match = make_match_data();
  size_t done = 0;    // everything before is in pieces
  size_t search = 0;  // next match begins here or later
  while (search < text.size()) {
    const int status = code_->match(text, search, match.get());
    if (status == PCRE2_ERROR_NOMATCH) break;
    TUTTI_CHECK(status >= 0, "split pattern '{}' fails at byte {} of {}: {}", pattern_, search, text.size(),
                message_of(status));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
    // \K in a lookahead can place the start behind the end; such a match is no piece.
    TUTTI_CHECK(range[0] >= done && range[1] > range[0], "split pattern '{}' matches backwards; \\K is not supported",
                pattern_);
    if (range[0] > done) ends.push_back(base + range[0]);
    ends.push_back(base + range[1]);
    done = search = range[1];
  }
  if (done < text.size()) ends.push_back(base + text.size());
}

bool RegexSplitter::matches(std::string_view text) const { return code_->match(text, 0, make_match_data().get()) >= 0; }

void RegexSplitter::split(std::string_view text, size_t base, std::vector<size_t>& ends) const {
  while (!text.empty()) {
    const size_t valid = utf8_valid_prefix_nbytes(text);
    if (valid > 0) split_valid(text.substr(0, valid), base, ends);
    size_t invalid = valid;
    while (invalid < text.size() && utf8_sequence_nbytes(text.substr(invalid)) == 0) ++invalid;
    if (invalid > valid) ends.push_back(base + invalid);
    base += invalid;
    text.remove_prefix(invalid);
  }
}

}  // namespace tutti::io
