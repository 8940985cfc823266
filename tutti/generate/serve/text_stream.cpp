#include "tutti/generate/serve/text_stream.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/io/utf8.h"

namespace tutti::generate::serve {
namespace {

// Decoders look at no more than the token before, so a few are enough.
constexpr size_t kWindow = 8;

// The bytes at the end of `text` that may become a character with those that follow: 0 to 3.
size_t unfinished_nbytes(std::string_view text) {
  for (size_t nbytes = 1; nbytes <= std::min<size_t>(3, text.size()); ++nbytes) {
    const auto lead = static_cast<unsigned char>(text[text.size() - nbytes]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t whole = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    return lead <= 0xF4 && nbytes < whole ? nbytes : 0;
  }
  return 0;
}

// The length of the longest end of `text` that is a beginning of `stop`, but not all of it.
size_t begun_nbytes(std::string_view text, std::string_view stop) {
  size_t nbytes = std::min(text.size(), stop.size() - 1);
  while (nbytes > 0 && text.substr(text.size() - nbytes) != stop.substr(0, nbytes)) --nbytes;
  return nbytes;
}

}  // namespace

std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t nbytes = io::utf8_valid_prefix_nbytes(text);
    valid += text.substr(0, nbytes);
    text.remove_prefix(nbytes);
    if (text.empty()) break;
    valid += "\uFFFD";
    text.remove_prefix(1);
  }
  return valid;
}

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)) {
  for (const std::string& stop : stops_) TUTTI_CHECK(!stop.empty(), "a stop string is empty; leave it out");
}

// How a token is written may depend on the one before (a space at the beginning of a text), so it is what the text
// grows by.
std::string TextStream::bytes_of(int32_t id) {
  const std::string before = tokenizer_.decode(window_, true);
  window_.push_back(id);
  std::string after = tokenizer_.decode(window_, true);
  if (window_.size() > kWindow) window_.erase(window_.begin());
  return after.starts_with(before) ? after.substr(before.size()) : std::string(tokenizer_.token_bytes(id));
}

std::string TextStream::feed(int32_t id) {
  if (is_stopped_) return {};
  held_ += bytes_of(id);
  return release(false);
}

std::string TextStream::finish() {
  if (is_stopped_) return {};
  return release(true);
}

std::string TextStream::release(bool is_last) {
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at >= end) continue;
    end = at;
    stop_ = stop;
    is_stopped_ = true;
  }
  if (!is_stopped_) {
    size_t kept = is_last ? 0 : unfinished_nbytes(held_);
    for (const std::string& stop : stops_)
      if (!is_last) kept = std::max(kept, begun_nbytes(held_, stop));
    end = held_.size() - kept;
    // A character is not cut where a stop string begins within it.
    end -= is_last ? 0 : unfinished_nbytes(std::string_view(held_).substr(0, end));
  }
  std::string released = valid_utf8(std::string_view(held_).substr(0, end));
  held_.erase(0, is_stopped_ ? held_.size() : end);
  return released;
}

}  // namespace tutti::generate::serve
